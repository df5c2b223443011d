package work

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// spectrum is a ping-pong from many buffers, of which the i-th is used i times, as in
// Thesis §5.5.1: the gain of buffer reuse where some buffers are used often and others
// rarely. Uses alternate. A rank waits for its send after it has received the answer.
func spectrum() *Workload {
	return newWorkload(&Workload{
		Name: "spectrum", Title: "a ping-pong from buffers of which some are used more often", Paper: "Thesis §5.5.1, Fig. 5.6",
		MinRanks: 2, RankRule: AnyCount, Sized: true,
	}, func(j *job) error {
		n := j.p.Bytes
		if n == 0 {
			n = 2 << 10
		}
		most := j.setIterations(map[Class]int{ClassT: 8, ClassS: 50, ClassW: 200, ClassA: 1000}[j.p.Class])
		const page = 4 << 10 // buffers do not share pages
		room := (n + page - 1) / page * page
		memory, recv := make([]byte, room*most), make([]byte, n)
		if err := j.start(); err != nil {
			return err
		}
		var inCalls time.Duration
		trips, me := 0, j.Rank()
		for turn := range most {
			for i := turn; i < most && me < 2; i++ { // buffer i has one turn less than buffer i+1
				buf := memory[room*i:][:n]
				fill(buf, j.messageKey(me, 1-me, trips))
				began := j.Wtime()
				s, err := roundTripNonblocking(j, buf, recv)
				if err != nil {
					return err
				}
				inCalls += j.Wtime() - began
				if err := j.checkReceived(recv, s, 1-me, 1, j.messageKey(1-me, me, trips)); err != nil {
					return err
				}
				trips++
			}
		}
		j.stop()
		latency, err := j.bcastFromRoot(inCalls.Seconds() / float64(max(1, 2*trips)))
		j.addFigure("latency", latency*1e6, "us")
		return err
	})
}

// roundTripNonblocking is roundTrip with sends that continue during the wait for the
// answer.
func roundTripNonblocking(j *job, send, recv []byte) (s mpi.Status, err error) {
	me := j.Rank()
	if me == 1 {
		if s, err = j.Recv(recv, 0, 1); err != nil {
			return s, err
		}
	}
	r, err := j.Isend(send, 1-me, 1)
	if err != nil {
		return s, err
	}
	if me == 0 {
		if s, err = j.Recv(recv, 1, 1); err != nil {
			return s, err
		}
	}
	return s, j.waitAll(r)
}
