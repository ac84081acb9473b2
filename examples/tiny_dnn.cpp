// A foreign program: LeNet by tiny-dnn (C++ headers, Debian's package tiny-dnn), trained over MPI
// ranks. tiny-dnn hands an optimizer one tensor after another, so one that collects a step's
// gradients and exchanges them with the last is all that changes.
//   mpiexec -n 2 tiny_dnn FOLDER [BATCHES [GRADWIRE'S OPTIONS]]
// FOLDER: MNIST's or Fashion-MNIST's four files, not gzipped.
#define CNN_SINGLE_THREAD // a rank is one thread
#include <gradwire.h>
#include <tiny_dnn/tiny_dnn.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

using namespace tiny_dnn;

namespace {

const int batch = 64; // samples over all ranks

// One rank's error that others do not learn of ends the job: MPI's launcher sees the exit.
int check(int e) {
    if (e < 0) {
        throw std::runtime_error(gradwire_error());
    }
    return e;
}

// Gradient descent with momentum on the mean over all ranks.
class exchange : public optimizer {
  public:
    exchange(gradwire *g, network<sequential> &net) : g_(g) {
        for (serial_size_t layer = 0; layer < net.layer_size(); layer++) {
            int part = 0;
            for (vec_t *w : net[layer]->weights()) {
                const std::string name = std::to_string(layer) + (part++ ? ".bias" : ".weight");
                check(gradwire_tensor(g, name.c_str(), group_, w->size(), 0, w->data()));
                weights_.push_back(w);
            }
            group_ += part > 0;
        }
        grads_.resize(weights_.size());
        speeds_.resize(weights_.size());
        for (size_t i = 0; i < weights_.size(); i++) {
            speeds_[i].assign(weights_[i]->size(), 0);
        }
        check(gradwire_open(g));
    }

    void begin(long samples) {
        check(gradwire_begin(g_, samples, batch));
        check(gradwire_phase(g_, GRADWIRE_BACKWARD));
    }

    void update(const vec_t &dw, vec_t &w, bool) override {
        if (&w != weights_[next_]) {
            throw std::runtime_error("tiny-dnn updates its weights in another order");
        }
        grads_[next_] = dw;
        float *grad = grads_[next_].data();
        int tensor = static_cast<int>(next_);
        check(gradwire_ready(g_, 1, &tensor, &grad));
        if (++next_ == weights_.size()) {
            next_ = 0;
            finish();
        }
    }

  private:
    void finish() {
        int tensor;
        size_t from, n;
        if (check(gradwire_finish(g_, GRADWIRE_ALL))) {
            check(gradwire_phase(g_, GRADWIRE_UPDATE));
            for (int i = 0; check(gradwire_owned(g_, i, &tensor, &from, &n)); i++) {
                for (size_t k = from; k < from + n; k++) {
                    speeds_[tensor][k] = 0.9F * speeds_[tensor][k] - 0.02F * grads_[tensor][k];
                    (*weights_[tensor])[k] += speeds_[tensor][k];
                }
            }
        }
        check(gradwire_updated(g_, GRADWIRE_ALL));
        check(gradwire_end(g_, std::nan("")));
    }

    gradwire *g_;
    int group_ = 0;
    size_t next_ = 0; // the tensor that comes
    std::vector<vec_t *> weights_;
    std::vector<vec_t> grads_, speeds_;
};

network<sequential> lenet() {
    network<sequential> net;
    net << convolutional_layer<tan_h>(32, 32, 5, 1, 6) << average_pooling_layer<tan_h>(28, 28, 6, 2)
        << convolutional_layer<tan_h>(14, 14, 5, 6, 16)
        << average_pooling_layer<tan_h>(10, 10, 16, 2)
        << convolutional_layer<tan_h>(5, 5, 5, 16, 120) << fully_connected_layer<tan_h>(120, 84)
        << fully_connected_layer<softmax>(84, 10);
    return net;
}

void read(const std::string &files, std::vector<vec_t> &images, std::vector<label_t> &labels) {
    parse_mnist_images(files + "-images-idx3-ubyte", &images, -1, 1, 2, 2);
    parse_mnist_labels(files + "-labels-idx1-ubyte", &labels);
}

// This rank's part of the first `batches` batches, one after another.
template <typename T>
std::vector<T> share(const std::vector<T> &all, int batches, int rank, int ranks) {
    std::vector<T> mine;
    for (int b = 0; b < batches; b++) {
        mine.insert(mine.end(), all.begin() + b * batch + batch * rank / ranks,
                    all.begin() + b * batch + batch * (rank + 1) / ranks);
    }
    return mine;
}

void train(int argc, char **argv, int rank, int ranks, gradwire *g) {
    std::vector<vec_t> images, test_images;
    std::vector<label_t> labels, test_labels;
    const std::string folder(argv[1]);
    read(folder + "/train", images, labels);
    read(folder + "/t10k", test_images, test_labels);
    const int whole = static_cast<int>(images.size()) / batch;
    const int batches = argc > 2 ? std::min(std::atoi(argv[2]), whole) : whole;
    if (batches < 1 || ranks > batch) {
        throw std::runtime_error("BATCHES must be a number from 1, and ranks at most 64");
    }
    images = share(images, batches, rank, ranks);
    labels = share(labels, batches, rank, ranks);
    network<sequential> net = lenet();
    set_random_seed(1);
    net.init_weight();
    exchange sgd(g, net);
    const int mine = batch * (rank + 1) / ranks - batch * rank / ranks;
    sgd.begin(mine);
    int left = batches;
    auto next = [&] {
        if (--left > 0) {
            sgd.begin(mine);
        }
    };
    net.train<cross_entropy_multiclass>(sgd, images, labels, mine, 1, next, [] {});
    check(gradwire_settle(g));
    if (rank == 0) {
        double sum = 0;
        for (serial_size_t layer = 0; layer < net.layer_size(); layer++) {
            for (const vec_t *w : net[layer]->weights()) {
                for (float value : *w) {
                    sum += std::fabs(value);
                }
            }
        }
        test_images.resize(1000);
        test_labels.resize(1000);
        result right = net.test(test_images, test_labels);
        std::printf("%d ranks, %d batches: sum of weights %.6f, %d of %d right\n", ranks, batches,
                    sum, right.num_success, right.num_total);
    }
}

} // namespace

int main(int argc, char **argv) {
    int rank = 0, ranks = 1;
    gradwire *g = nullptr;
    try {
        std::string words;
        for (int i = 3; i < argc; i++) {
            words += std::string(argv[i]) + " ";
        }
        check(gradwire_start(words.c_str(), &rank, &ranks));
        if (argc < 2) {
            throw std::runtime_error("usage: tiny_dnn FOLDER [BATCHES [GRADWIRE'S OPTIONS]]");
        }
        check(gradwire_new(&g, -1, words.c_str()));
        train(argc, argv, rank, ranks, g);
        check(gradwire_close(g));
    } catch (const std::exception &e) {
        std::fprintf(stderr, "tiny_dnn: %s\n", e.what());
        return 2;
    }
    return 0;
}
