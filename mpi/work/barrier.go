package work

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// barrier makes all ranks enter barriers, one of them late. A rank that has left a barrier
// sends messages to the ranks 1, 2, 4, … after it, and no rank may receive such a message
// before it has entered.
func barrier() *Workload {
	return newWorkload(&Workload{
		Name: "barrier", Title: "a barrier that no rank leaves before the last has entered", Paper: "the runtime's own",
		MinRanks: 2, RankRule: AnyCount, Sized: true,
	}, func(j *job) error {
		n := j.p.Bytes
		if n == 0 {
			n = 64
		}
		return j.runRounds(map[Class]int{ClassT: 2, ClassS: 20, ClassW: 200, ClassA: 2000}, barrierRound(j, n))
	})
}

// barrierDelay is the delay of the late rank, many times the latency of a message.
const barrierDelay = 100 * time.Microsecond

// barrierRound returns a round of barrier with messages of n bytes.
func barrierRound(j *job, n int) func(round int) error {
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
			j.Compute(barrierDelay)
		}
		for i, r := range heard {
			_, left, err := r.Test()
			if err != nil {
				return err
			}
			if j.checked(1, 0); left {
				return j.verificationError("none", (me-1<<i+size)%size, "rank that left barrier %d before this rank entered", round)
			}
		}
		if err := j.Barrier(); err != nil {
			return err
		}
		for i := range words {
			to := (me + 1<<i) % size
			fill(word, j.messageKey(me, to, round))
			if err := j.Send(word, to, i); err != nil {
				return err
			}
		}
		if err := j.waitAll(heard...); err != nil {
			return err
		}
		for i := range words {
			from := (me - 1<<i + size) % size
			if err := j.checkContents(words[i], j.messageKey(from, me, round), "message of rank %d after barrier %d", from, round); err != nil {
				return err
			}
		}
		return nil
	}
}

// smoke checks that all ranks respond, for worlds of any size: a token passes through all
// ranks, then a barrier, then an all-to-all.
func smoke() *Workload {
	return newWorkload(&Workload{
		Name: "smoke", Title: "check that all ranks respond: a ring, a barrier, and an all-to-all of 8 bytes", Paper: "the runtime's own",
		MinRanks: 2, RankRule: AnyCount, Sized: true,
	}, func(j *job) error {
		n := j.p.Bytes
		if n == 0 {
			n = 8
		}
		times := j.setIterations(map[Class]int{ClassT: 1, ClassS: 10, ClassW: 100, ClassA: 1000}[j.p.Class])
		if err := passTokenRound(j, max(n, 8), times); err != nil {
			return err
		}
		if err := j.repeat(times, "time a barrier", barrierRound(j, n)); err != nil {
			return err
		}
		return j.repeat(times, "time an all-to-all", exchangeAll(j, n))
	})
}

// star makes rank 0 exchange messages with every other rank in turn. Rank 0 has as many
// partners as in an all-to-all, and as much memory, in a world that needs far less.
func star() *Workload {
	return newWorkload(&Workload{
		Name: "star", Title: "rank 0 with every other rank, in turn: a master and its workers", Paper: "Thesis §6.6.2",
		MinRanks: 2, RankRule: AnyCount, Sized: true,
	}, func(j *job) error {
		n := j.p.Bytes
		if n == 0 {
			n = 1 << 10
		}
		send, recv := make([]byte, n), make([]byte, n)
		say := func(peer, round int) error {
			fill(send, j.messageKey(j.Rank(), peer, round))
			return j.Send(send, peer, 1)
		}
		hear := func(peer, round int) error {
			if _, err := j.Recv(recv, peer, 1); err != nil {
				return err
			}
			return j.checkContents(recv, j.messageKey(peer, j.Rank(), round), "message of rank %d in round %d", peer, round)
		}
		return j.runRounds(map[Class]int{ClassT: 4, ClassS: 20, ClassW: 100, ClassA: 500}, func(round int) error {
			j.compute(1)
			if j.Rank() > 0 { // rank 0 has one outstanding message at a time
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
