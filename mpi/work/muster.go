package work

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// barrier has all ranks meet, one of them later than the others. Who has left tells
// those that are 1, 2, 4, … ranks on, and nobody may hear of one who has left before it
// has come itself.
func barrier() *Workload {
	return runner(&Workload{
		Name: "barrier", Title: "all ranks meet, and none leaves before the last has come", Paper: "the runtime's own",
		MinRanks: 2, RankRule: AnyCount, Sized: true,
	}, func(j *job) error {
		n := j.p.Bytes
		if n == 0 {
			n = 64
		}
		return j.rounds(map[Class]int{ClassT: 2, ClassS: 20, ClassW: 200, ClassA: 2000}, meet(j, n))
	})
}

// lateBy is how much later the last one comes: many times what it takes a word to get
// there that somebody has left.
const lateBy = 100 * time.Microsecond

// meet is a round of barrier, in which words have n bytes.
func meet(j *job, n int) func(round int) error {
	me, size := j.Rank(), j.Size()
	var words [][]byte
	for step := 1; step < size; step *= 2 {
		words = append(words, make([]byte, n))
	}
	word := make([]byte, n)
	return func(round int) error {
		heard := make([]*mpi.Request, len(words))
		for i := range words {
			r, err := j.Irecv(words[i], (me-1<<i+size)%size, i)
			if err != nil {
				return err
			}
			heard[i] = r
		}
		if late := (round*7 + size/2) % size; me == late {
			j.Compute(lateBy)
		}
		for i, r := range heard {
			_, left, err := r.Test()
			if err != nil {
				return err
			}
			if j.checked(1, 0); left {
				return j.wrong("nobody", (me-1<<i+size)%size, "who has left barrier %d before this rank has come", round)
			}
		}
		if err := j.Barrier(); err != nil {
			return err
		}
		for i := range words {
			to := (me + 1<<i) % size
			fill(word, j.message(me, to, round))
			if err := j.Send(word, to, i); err != nil {
				return err
			}
		}
		if err := j.waitAll(heard...); err != nil {
			return err
		}
		for i := range words {
			from := (me - 1<<i + size) % size
			if err := j.contents(words[i], j.message(from, me, round), "the word of rank %d behind barrier %d", from, round); err != nil {
				return err
			}
		}
		return nil
	}
}

// muster is whether everybody is there, for worlds of any size: a token goes round
// all ranks, all meet, and everybody sends everybody something.
func muster() *Workload {
	return runner(&Workload{
		Name: "muster", Title: "are all there: a ring, a barrier, and 8 bytes from everybody to everybody", Paper: "the runtime's own",
		MinRanks: 2, RankRule: AnyCount, Sized: true,
	}, func(j *job) error {
		n := j.p.Bytes
		if n == 0 {
			n = 8
		}
		times := j.steps(map[Class]int{ClassT: 1, ClassS: 10, ClassW: 100, ClassA: 1000}[j.p.Class])
		if err := goRound(j, max(n, 8), times); err != nil {
			return err
		}
		if err := j.repeat(times, "time a barrier", meet(j, n)); err != nil {
			return err
		}
		return j.repeat(times, "time an all-to-all", exchangeAll(j, n))
	})
}

// star has rank 0 exchange messages with every other rank, one after the other, and
// nobody with anybody else: rank 0 has as many partners as where everybody talks to
// everybody, and so as much memory, in a world that needs far less.
func star() *Workload {
	return runner(&Workload{
		Name: "star", Title: "rank 0 with every other rank, in turn: a master and its workers", Paper: "Thesis §6.6.2",
		MinRanks: 2, RankRule: AnyCount, Sized: true,
	}, func(j *job) error {
		n := j.p.Bytes
		if n == 0 {
			n = 1 << 10
		}
		send, recv := make([]byte, n), make([]byte, n)
		say := func(peer, round int) error {
			fill(send, j.message(j.Rank(), peer, round))
			return j.Send(send, peer, 1)
		}
		hear := func(peer, round int) error {
			if _, err := j.Recv(recv, peer, 1); err != nil {
				return err
			}
			return j.contents(recv, j.message(peer, j.Rank(), round), "message of rank %d in round %d", peer, round)
		}
		return j.rounds(map[Class]int{ClassT: 4, ClassS: 20, ClassW: 100, ClassA: 500}, func(round int) error {
			j.compute(1)
			if j.Rank() > 0 { // it answers: rank 0 has one message under way at a time
				if err := hear(0, round); err != nil {
					return err
				}
				return say(0, round)
			}
			for peer := 1; peer < j.Size(); peer++ {
				if err := say(peer, round); err != nil {
					return err
				}
				if err := hear(peer, round); err != nil {
					return err
				}
			}
			return nil
		})
	})
}
