package work

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// exchange1 is the first data exchange model of Thesis §4.4.1 (Fig. 4.15): receives are
// posted, data is packed and sent, the next data is produced, and then both are waited for.
// Speculative rendezvous benefits from the early receive.
func exchange1() *Workload {
	return newWorkload(&Workload{
		Name: "exchange1", Title: "produce and consume, receive posted before the send", Paper: "Thesis §4.4.1, Fig. 4.15",
		MinRanks: 2, RankRule: AnyCount, Sized: true,
	}, func(j *job) error {
		x := newExchange(j)
		return x.run(func(i int) error {
			if err := x.post(); err != nil {
				return err
			}
			if err := x.send(i); err != nil {
				return err
			}
			x.produce()
			if err := x.wait(); err != nil {
				return err
			}
			return x.consume(i)
		})
	})
}

// exchange2 is the second model: data is sent first, the previous data consumed, and the
// receive posted afterwards.
func exchange2() *Workload {
	return newWorkload(&Workload{
		Name: "exchange2", Title: "produce and consume, receive posted after the send", Paper: "Thesis §4.4.1, Fig. 4.15",
		MinRanks: 2, RankRule: AnyCount, Sized: true,
	}, func(j *job) error {
		x := newExchange(j)
		err := x.run(func(i int) error {
			if err := x.send(i); err != nil {
				return err
			}
			if i > 0 {
				if err := x.consume(i - 1); err != nil {
					return err
				}
			}
			if err := x.post(); err != nil {
				return err
			}
			x.produce()
			return x.wait()
		})
		if err != nil {
			return err
		}
		return x.consume(j.iterations - 1)
	})
}

// exchange is the data exchanged with a rank's neighbours: one of two ranks, two in a ring
// of more.
type exchange struct {
	j          *job
	peers      []int
	pack, recv [][]byte
	sends      []*mpi.Request
	receives   []*mpi.Request
}

func newExchange(j *job) *exchange {
	n := j.p.Bytes
	if n == 0 {
		n = map[Class]int{ClassT: 32 << 10, ClassS: 128 << 10, ClassW: 128 << 10, ClassA: 1 << 20}[j.p.Class]
	}
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

// run repeats a step.
func (x *exchange) run(step func(i int) error) error {
	j := x.j
	j.setIterations(map[Class]int{ClassT: 4, ClassS: 50, ClassW: 500, ClassA: 500}[j.p.Class])
	if err := j.start(); err != nil {
		return err
	}
	x.produce()
	for i := range j.iterations {
		if err := step(i); err != nil {
			return err
		}
	}
	j.stop()
	each, err := j.maxAll(j.elapsed.Seconds() / float64(j.iterations))
	j.addFigure("time an iteration", each*1e6, "us")
	j.addFigure("bytes a message", float64(len(x.pack[0])), "B")
	return err
}

func (x *exchange) post() error {
	x.receives = x.receives[:0]
	for k, p := range x.peers {
		r, err := x.j.Irecv(x.recv[k], p, 1)
		if err != nil {
			return err
		}
		x.receives = append(x.receives, r)
	}
	return nil
}

// produce computes for 3/8 of an iteration, as consume does; packing in send takes the
// remaining quarter. In the first model the RTR of the peer can arrive during packing.
func (x *exchange) produce() { x.j.computeFraction(3, 8) }

// send packs and sends the data of an iteration.
func (x *exchange) send(i int) error {
	x.sends = x.sends[:0]
	x.j.computeFraction(1, 4)
	for k, p := range x.peers {
		fill(x.pack[k], x.j.messageKey(x.j.Rank(), p, i))
		r, err := x.j.Isend(x.pack[k], p, 1)
		if err != nil {
			return err
		}
		x.sends = append(x.sends, r)
	}
	return nil
}

// wait waits for the sends, then for the receives.
func (x *exchange) wait() error {
	for _, rs := range [][]*mpi.Request{x.sends, x.receives} {
		for _, r := range rs {
			if _, err := x.j.wait(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// consume checks the received data.
func (x *exchange) consume(i int) error {
	x.j.computeFraction(3, 8)
	for k, p := range x.peers {
		if err := x.j.checkContents(x.recv[k], x.j.messageKey(p, x.j.Rank(), i), "data %d from rank %d", i, p); err != nil {
			return fmt.Errorf("consume: %w", err)
		}
	}
	return nil
}
