package work

import (
	"cmp"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// barrier makes all ranks enter barriers, one of them late. A rank that has left a barrier
// sends messages to the ranks 1, 2, 4, … after it, and no rank may receive such a message
// before it has entered.
func barrier(j *job) {
	n := cmp.Or(j.p.Bytes, 64)
	j.runRounds(map[Class]int{ClassT: 2, ClassS: 20, ClassW: 200, ClassA: 2000}, barrierRound(j, n))
}

// barrierDelay is the delay of the late rank, many times the latency of a message.
const barrierDelay = 100 * time.Microsecond

// barrierRound returns a round of barrier with messages of n bytes.
func barrierRound(j *job, n int) func(round int) {
	me, size := j.Rank(), j.Size()
	var recv [][]byte
	for step := 1; step < size; step *= 2 {
		recv = append(recv, make([]byte, n))
	}
	send := make([]byte, n)
	return func(round int) {
		receives := make([]*mpi.Request, len(recv))
		for i := range recv {
			receives[i] = j.Irecv(recv[i], (me-1<<i+size)%size, i)
		}
		if late := (round*7 + size/2) % size; me == late {
			j.Compute(barrierDelay)
		}
		for i, r := range receives {
			_, left, err := r.Test()
			check(err)
			if j.checked(1, 0); left {
				j.failVerification("none", (me-1<<i+size)%size, "rank that left barrier %d before this rank entered", round)
			}
		}
		j.Barrier()
		for i := range recv {
			to := (me + 1<<i) % size
			fill(send, j.messageKey(me, to, round))
			j.Send(send, to, i)
		}
		j.waitAll(receives...)
		for i := range recv {
			from := (me - 1<<i + size) % size
			j.checkContents(recv[i], j.messageKey(from, me, round), "message of rank %d after barrier %d", from, round)
		}
	}
}

// smoke checks that all ranks respond, for worlds of any size: a token passes through all
// ranks, then a barrier, then an all-to-all.
func smoke(j *job) {
	n := cmp.Or(j.p.Bytes, 8)
	times := j.setIterations(map[Class]int{ClassT: 1, ClassS: 10, ClassW: 100, ClassA: 1000}[j.p.Class])
	passTokenRound(j, max(n, 8), times)
	j.repeat(times, "time a barrier", barrierRound(j, n))
	j.repeat(times, "time an all-to-all", alltoallRound(j, n))
}

// star makes rank 0 exchange messages with every other rank in turn. Rank 0 has as many
// partners as in an all-to-all, and as much memory, in a world that needs far less.
func star(j *job) {
	n := cmp.Or(j.p.Bytes, 1<<10)
	send, recv := make([]byte, n), make([]byte, n)
	sendTo := func(peer, round int) {
		fill(send, j.messageKey(j.Rank(), peer, round))
		j.Send(send, peer, 1)
	}
	receiveFrom := func(peer, round int) {
		j.Recv(recv, peer, 1)
		j.checkContents(recv, j.messageKey(peer, j.Rank(), round), "message of rank %d in round %d", peer, round)
	}
	j.runRounds(map[Class]int{ClassT: 4, ClassS: 20, ClassW: 100, ClassA: 500}, func(round int) {
		j.compute(1)
		if j.Rank() > 0 { // rank 0 has one outstanding message at a time
			receiveFrom(0, round)
			sendTo(0, round)
			return
		}
		for peer := 1; peer < j.Size(); peer++ {
			sendTo(peer, round)
			receiveFrom(peer, round)
		}
	})
}
