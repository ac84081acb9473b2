"""algo=auto through the program: its choice is reported and saved, and a saved table repeats it."""


import gwrun

SMALL = ("--data", "synthetic:samples=2000,features=200,classes=10,seed=1", "--layers", "256",
         "--epochs", 1, "--steps", 20)


class Auto(gwrun.Case):

    def test_repeats(self):
        first = gwrun.train(2, self.path("a"), *SMALL, "--comm", "allreduce:algo=auto")
        rows = gwrun.rows(self.path("a", "algo.csv"))
        chosen = [row["algorithm"] for row in rows if row["chosen"] == "1"]
        self.assertEqual(len(chosen), len({row["bytes"] for row in rows}))
        for row in rows:
            self.assertEqual((row["ranks"], row["lane"], row["codec"]), ("2", "gradients", "none"))
            self.assertGreater(float(row["time_s"]), 0)
        notes = first["comm"]["notes"]
        for name in chosen:
            self.assertIn(name, notes.splitlines()[0])
        self.assertIn("measured at the start", notes)
        again = gwrun.train(2, self.path("b"), *SMALL, "--comm",
                            f"allreduce:algo=(auto:table={self.path('a', 'algo.csv')})")
        self.assertEqual(again["results"]["replica_hash"], first["results"]["replica_hash"])
        self.assertIn("as its table says", again["comm"]["notes"])
        self.assertEqual(*(gwrun.read(self.path(name, "algo.csv")) for name in "ab"))
