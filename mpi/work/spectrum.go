package work

import (
	"cmp"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// spectrum is a ping-pong from many buffers, of which the i-th is used i times, as in Rashti 2010
// §5.5.1: the gain of buffer reuse where some buffers are used often and others rarely. Buffers do
// not share pages. Rank 0 waits for its send after it has received the answer.
func spectrum(j *job) { measureSpectrum(j, newPagedBuffers) }

// packed is a ping-pong from many buffers, of which the i-th is used i times. Unlike in the
// workload spectrum the buffers are back to back, and small ones share pages.
func packed(j *job) { measureSpectrum(j, newPackedBuffers) }

// measureSpectrum measures the latency of a ping-pong between ranks 0 and 1 from the buffers that
// allocate returns, of which the i-th is used i times.
func measureSpectrum(j *job, allocate func(count, n int) *bufferSet) {
	n := cmp.Or(j.p.Bytes, 2<<10)
	count, me := spectrumSize(j), j.Rank()
	send, recv := allocate(count, n), make([]byte, n)
	j.start()
	var inCalls time.Duration
	trips := 0
	if me < 2 {
		send.eachOfSpectrum(func(buf []byte) {
			fill(buf, j.messageKey(me, 1-me, trips))
			began := j.Wtime()
			s := roundTripNonblocking(j, buf, recv)
			inCalls += j.Wtime() - began
			j.checkReceived(recv, s, 1-me, 1, j.messageKey(1-me, me, trips))
			trips++
		})
	}
	j.stop()
	latency := j.bcastFromRoot(inCalls.Seconds() / float64(max(1, 2*trips)))
	j.addFigure("latency", latency*1e6, "us")
}

// spectrumSize sets the iterations to the number of buffers of a spectrum, and returns it.
func spectrumSize(j *job) int {
	return j.setIterations(map[Class]int{ClassT: 8, ClassS: 50, ClassW: 200, ClassA: 1000}[j.p.Class])
}

// bufferSet is a number of buffers of the same size.
type bufferSet struct {
	memory           []byte
	count, n, stride int
}

// newPagedBuffers returns count buffers of n bytes, each of which begins a page and shares it with
// no other one.
func newPagedBuffers(count, n int) *bufferSet {
	const page = 4 << 10
	stride := (n + page - 1) / page * page
	return &bufferSet{make([]byte, count*stride), count, n, stride}
}

// newPackedBuffers returns count buffers of n bytes without gaps between them.
func newPackedBuffers(count, n int) *bufferSet {
	return &bufferSet{make([]byte, count*n), count, n, n}
}

// at returns buffer i.
func (b *bufferSet) at(i int) []byte { return b.memory[b.stride*i:][:b.n] }

// eachOfSpectrum calls use for the first buffer once, for the second twice, and so on. Turn t uses
// all buffers from t on, once each.
func (b *bufferSet) eachOfSpectrum(use func(buf []byte)) {
	for turn := range b.count {
		for i := turn; i < b.count; i++ { // buffer i has one turn less than buffer i+1
			use(b.at(i))
		}
	}
}

// roundTripNonblocking exchanges a message each way, rank 0 first, with nonblocking sends: that of
// rank 0 continues during its wait for the answer. It returns the status of the receive.
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
