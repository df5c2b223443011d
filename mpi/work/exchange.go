package work

import (
	"cmp"

	"github.com/fabrictest/fabrictest/mpi"
)

// exchange1 is the first data exchange model of Rashti 2010 §4.4.1 (Fig. 4.15): receives are
// posted, data is packed and sent, the next data is produced, and sends and receives are awaited.
// Speculative rendezvous, in which a receiver sends its RTR before it gets an RTS, benefits from
// the early receive.
func exchange1(j *job) {
	x := newExchange(j)
	x.run(func(i int) {
		x.post()
		x.send(i)
		x.produce()
		x.wait()
		x.consume(i)
	})
}

// exchange2 is the second data exchange model of Rashti 2010 §4.4.1: data is sent first, the
// previous data consumed, and the receive posted afterwards.
func exchange2(j *job) {
	x := newExchange(j)
	x.run(func(i int) {
		x.send(i)
		if i > 0 {
			x.consume(i - 1)
		}
		x.post()
		x.produce()
		x.wait()
	})
	x.consume(j.iterations - 1)
}

// exchange is the data exchanged with a rank's neighbours, of which it has one if there are
// two ranks, and two in a ring of more.
type exchange struct {
	j          *job
	peers      []int
	pack, recv [][]byte // by neighbour
	sends      []*mpi.Request
	receives   []*mpi.Request
}

// newExchange allocates a buffer to send and one to receive for each neighbour.
func newExchange(j *job) *exchange {
	n := cmp.Or(j.p.Bytes, map[Class]int{ClassT: 32 << 10, ClassS: 128 << 10, ClassW: 128 << 10, ClassA: 1 << 20}[j.p.Class])
	size := j.Size()
	x := &exchange{j: j, peers: []int{(j.Rank() + 1) % size}}
	if size > 2 {
		x.peers = append(x.peers, (j.Rank()+size-1)%size)
	}
	for range x.peers {
		x.pack, x.recv = append(x.pack, make([]byte, n)), append(x.recv, make([]byte, n))
	}
	return x
}

// run times the first produce and all iterations of step, and adds the time of an iteration and the
// size of a message to the result.
func (x *exchange) run(step func(i int)) {
	j := x.j
	j.setIterations(map[Class]int{ClassT: 4, ClassS: 50, ClassW: 500, ClassA: 500}[j.p.Class])
	j.start()
	x.produce()
	for i := range j.iterations {
		step(i)
	}
	j.stop()
	each := j.maxAll(j.elapsed.Seconds() / float64(j.iterations))
	j.addFigure("time an iteration", each*1e6, "us")
	j.addFigure("bytes a message", float64(len(x.pack[0])), "B")
}

// post posts a receive from each neighbour.
func (x *exchange) post() {
	x.receives = x.receives[:0]
	for k, p := range x.peers {
		x.receives = append(x.receives, x.j.Irecv(x.recv[k], p, 1))
	}
}

// produce computes for half of an iteration, as consume does: their times are equal in the
// publication, and together are all computation.
func (x *exchange) produce() { x.j.spendComputePart(2) }

// send packs the data of iteration i, which takes the time of a copy, and sends it.
func (x *exchange) send(i int) {
	x.sends = x.sends[:0]
	for k, p := range x.peers {
		fill(x.pack[k], x.j.messageKey(x.j.Rank(), p, i))
		x.j.world.ComputeCopy(len(x.pack[k]))
		x.sends = append(x.sends, x.j.Isend(x.pack[k], p, 1))
	}
}

// wait waits for the sends, then for the receives.
func (x *exchange) wait() {
	for _, rs := range [][]*mpi.Request{x.sends, x.receives} {
		for _, r := range rs {
			x.j.wait(r)
		}
	}
}

// consume computes for half of an iteration, and checks the data received in iteration i.
func (x *exchange) consume(i int) {
	x.j.spendComputePart(2)
	for k, p := range x.peers {
		x.j.checkContents(x.recv[k], x.j.messageKey(p, x.j.Rank(), i), "data %d from rank %d", i, p)
	}
}
