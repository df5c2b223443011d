package work

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// pingpong is the latency benchmark of Thesis §3.3: blocking sends and receives between two
// ranks. Half the round trip is the latency; bytes divided by it are the one-way bandwidth.
func pingpong(j *job) {
	sizes := j.messageSizes(map[Class][]int{
		ClassT: {0, 8, 1 << 10, 16 << 10, 128 << 10},
		ClassS: {0, 8, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10},
		ClassW: {0, 1, 8, 64, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20},
		ClassA: {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20},
	})
	trips := j.setIterations(map[Class]int{ClassT: 4, ClassS: 100, ClassW: 1000, ClassA: 10000}[j.p.Class])
	for _, n := range sizes {
		pingpongSize(j, n, trips)
	}
}

// pingpongSize measures one size at rank 0. Contents differ on every trip; both ranks
// generate and compare them between trips.
func pingpongSize(j *job, n, trips int) {
	me, send, recv := j.Rank(), make([]byte, n), make([]byte, n)
	j.start()
	var inCalls time.Duration
	for trip := -1; trip < trips && me < 2; trip++ { // the first trip is a warm-up
		fill(send, j.messageKey(me, 1-me, trip))
		began := j.Wtime()
		s := roundTrip(j, send, recv)
		if trip >= 0 {
			inCalls += j.Wtime() - began
		}
		j.checkReceived(recv, s, 1-me, 1, j.messageKey(1-me, me, trip))
	}
	j.stop()
	latency := j.bcastFromRoot(inCalls.Seconds() / float64(2*trips))
	j.addFigure(fmt.Sprintf("latency %d B", n), latency*1e6, "us")
	if n > 0 {
		j.addFigure(fmt.Sprintf("bandwidth %d B", n), float64(n)/latency/1e6, "MB/s")
	}
}

// roundTrip sends and then receives on rank 0, and receives and then sends on rank 1. It returns
// the status of the receive.
func roundTrip(j *job, send, recv []byte) mpi.Status {
	if j.Rank() == 0 {
		j.Send(send, 1, 1)
		return j.Recv(recv, 1, 1)
	}
	s := j.Recv(recv, 0, 1)
	j.Send(send, 0, 1)
	return s
}

// checkReceived checks the status of a receive, and its data: those of fill with the key k.
func (j *job) checkReceived(buf []byte, s mpi.Status, source, tag int, k uint64) {
	if want := (mpi.Status{Source: source, Tag: tag, Count: len(buf)}); s != want {
		j.failVerification(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", s), "status of a receive from rank %d with tag %d", source, tag)
	}
	j.checkContents(buf, k, "message from rank %d with tag %d", source, tag)
}
