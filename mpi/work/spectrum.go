package work

import (
	"cmp"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// spectrum is a ping-pong from many buffers, of which the i-th is used i times, as in
// Thesis §5.5.1: the gain of buffer reuse where some buffers are used often and others
// rarely. Uses alternate. A rank waits for its send after it has received the answer.
func spectrum(j *job) {
	n := cmp.Or(j.p.Bytes, 2<<10)
	most := j.setIterations(map[Class]int{ClassT: 8, ClassS: 50, ClassW: 200, ClassA: 1000}[j.p.Class])
	const page = 4 << 10 // buffers do not share pages
	room := (n + page - 1) / page * page
	memory, recv := make([]byte, room*most), make([]byte, n)
	j.start()
	var inCalls time.Duration
	trips, me := 0, j.Rank()
	for turn := range most {
		for i := turn; i < most && me < 2; i++ { // buffer i has one turn less than buffer i+1
			buf := memory[room*i:][:n]
			fill(buf, j.messageKey(me, 1-me, trips))
			began := j.Wtime()
			s := roundTripNonblocking(j, buf, recv)
			inCalls += j.Wtime() - began
			j.checkReceived(recv, s, 1-me, 1, j.messageKey(1-me, me, trips))
			trips++
		}
	}
	j.stop()
	latency := j.bcastFromRoot(inCalls.Seconds() / float64(max(1, 2*trips)))
	j.addFigure("latency", latency*1e6, "us")
}

// roundTripNonblocking is roundTrip with sends that continue during the wait for the
// answer.
func roundTripNonblocking(j *job, send, recv []byte) (s mpi.Status) {
	me := j.Rank()
	if me == 1 {
		s = j.Recv(recv, 0, 1)
	}
	r := j.Isend(send, 1-me, 1)
	if me == 0 {
		s = j.Recv(recv, 1, 1)
	}
	j.waitAll(r)
	return s
}
