package work

import (
	"cmp"
	"encoding/binary"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// ring passes a token through all ranks. Each adds to it, therefore the next rank detects a
// duplicate or a change.
func ring(j *job) {
	n := max(cmp.Or(j.p.Bytes, 64), 8) // the token has a counter of 8 bytes
	passTokenRound(j, n, j.setIterations(map[Class]int{ClassT: 2, ClassS: 20, ClassW: 200, ClassA: 2000}[j.p.Class]))
}

// passTokenRound passes a token of n bytes through all ranks, for a number of laps.
func passTokenRound(j *job, n, laps int) {
	token := make([]byte, n)
	fill(token[8:], j.messageKey(0, 0, 0))
	me, size := j.Rank(), j.Size()
	left, right := (me+size-1)%size, (me+1)%size
	j.start()
	for lap := range laps {
		if me == 0 {
			passToken(j, token, right)
		}
		j.Recv(token, left, 1)
		hops := uint64(lap*size + me)
		if me == 0 {
			hops += uint64(size)
		}
		j.checkEqual(hops, binary.LittleEndian.Uint64(token), "hops of the token on lap %d", lap)
		j.checkContents(token[8:], j.messageKey(0, 0, 0), "the token's body on lap %d", lap)
		if me != 0 {
			passToken(j, token, right)
		}
	}
	hop := j.bcastFromRoot(j.stop().Seconds() / float64(laps*size))
	j.addFigure("time a hop", hop*1e6, "us")
}

// passToken increments the counter of the token and sends it.
func passToken(j *job, token []byte, to int) {
	binary.LittleEndian.PutUint64(token, binary.LittleEndian.Uint64(token)+1)
	j.spendComputePart(1)
	j.Send(token, to, 1)
}

// neighbours exchanges messages with both neighbours on each axis of a torus of up to three
// axes: the pattern of programs on grids, whose number of partners does not grow with the
// ranks (Rashti 2010 §6.6.2). Receives are posted first.
func neighbours(j *job) {
	n := cmp.Or(j.p.Bytes, map[Class]int{ClassT: 1 << 10, ClassS: 8 << 10, ClassW: 32 << 10, ClassA: 128 << 10}[j.p.Class])
	partners := newTorus(box(j.Size()), j.Rank()).partners()
	send, recv := make([][]byte, len(partners)), make([][]byte, len(partners))
	for i := range partners {
		send[i], recv[i] = make([]byte, n), make([]byte, n)
	}
	number := func(round, direction int) int { return round*8 + direction } // of up to six directions
	j.runRounds(map[Class]int{ClassT: 4, ClassS: 20, ClassW: 100, ClassA: 500}, func(round int) {
		rs := make([]*mpi.Request, 0, 2*len(partners))
		for i, p := range partners {
			rs = append(rs, j.Irecv(recv[i], p.rank, p.direction^1)) // the peer sends in the opposite direction
		}
		j.spendComputePart(2)
		for i, p := range partners {
			fill(send[i], j.messageKey(j.Rank(), p.rank, number(round, p.direction)))
			rs = append(rs, j.Isend(send[i], p.rank, p.direction))
		}
		j.spendComputePart(2)
		j.waitAll(rs...)
		for i, p := range partners {
			j.checkContents(recv[i], j.messageKey(p.rank, j.Rank(), number(round, p.direction^1)), "message from neighbour %d in round %d", p.rank, round)
		}
	})
}

// alltoall sends different data from every rank to every other with the collective operation.
func alltoall(j *job) {
	n := cmp.Or(j.p.Bytes, map[Class]int{ClassT: 8, ClassS: 1 << 10, ClassW: 8 << 10, ClassA: 32 << 10}[j.p.Class])
	j.runRounds(map[Class]int{ClassT: 2, ClassS: 10, ClassW: 50, ClassA: 100}, alltoallRound(j, n))
}

// alltoallRound returns a round of an all-to-all with n bytes per pair.
func alltoallRound(j *job, n int) func(round int) {
	send, recv := make([]byte, n*j.Size()), make([]byte, n*j.Size())
	return func(round int) {
		for to := range j.Size() {
			fill(send[to*n:][:n], j.messageKey(j.Rank(), to, round))
		}
		j.spendComputePart(1)
		j.Alltoall(send, recv)
		for from := range j.Size() {
			j.checkContents(recv[from*n:][:n], j.messageKey(from, j.Rank(), round), "part of rank %d in round %d", from, round)
		}
	}
}

// runRounds repeats a round as often as the class says.
func (j *job) runRounds(byClass map[Class]int, do func(round int)) {
	j.repeat(j.setIterations(byClass[j.p.Class]), "time a round", do)
}

// repeat calls do for n rounds, and adds the time of a round, on the slowest rank, to the result as
// figure.
func (j *job) repeat(n int, figure string, do func(round int)) {
	j.start()
	for round := range n {
		do(round)
	}
	each := j.maxAll(j.stop().Seconds() / float64(n))
	j.addFigure(figure, each*1e6, "us")
}

// barrier makes all ranks enter barriers, one of them late. A rank that has left a barrier
// sends messages to the ranks 1, 2, 4, … after it, and no rank may receive such a message
// before it has entered.
func barrier(j *job) {
	n := cmp.Or(j.p.Bytes, 64)
	j.runRounds(map[Class]int{ClassT: 2, ClassS: 20, ClassW: 200, ClassA: 2000}, barrierRound(j, n))
}

// barrierDelay is the delay of the late rank, many times the latency of a message.
const barrierDelay = 100 * time.Microsecond

// barrierRound returns a round of barrier with messages of n bytes. Ranks send messages after they
// have left the barrier: no message may arrive before the receiver enters. One rank enters late,
// usually another one in each round.
func barrierRound(j *job, n int) func(round int) {
	me, size := j.Rank(), j.Size()
	senderOf := func(i int) int { return (me - 1<<i + size) % size }
	var recv [][]byte
	for step := 1; step < size; step *= 2 {
		recv = append(recv, make([]byte, n))
	}
	send := make([]byte, n)
	return func(round int) {
		receives := make([]*mpi.Request, len(recv))
		for i := range recv {
			receives[i] = j.Irecv(recv[i], senderOf(i), i)
		}
		if late := (round*7 + size/2) % size; me == late {
			j.Compute(barrierDelay)
		}
		for i, r := range receives {
			_, arrived, err := r.Test()
			check(err)
			j.countChecks(1, 0)
			if arrived {
				want, got := "none", senderOf(i)
				j.failVerification(want, got, "rank that left barrier %d before this rank entered", round)
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
			from := senderOf(i)
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

// star makes rank 0 exchange messages with every other rank in turn. Rank 0 has as many partners as
// in an all-to-all, and needs as much memory; the other ranks have one partner.
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
		j.spendComputePart(1)
		if j.Rank() > 0 {
			receiveFrom(0, round)
			sendTo(0, round)
			return
		}
		for peer := 1; peer < j.Size(); peer++ { // one outstanding message at a time
			sendTo(peer, round)
			receiveFrom(peer, round)
		}
	})
}
