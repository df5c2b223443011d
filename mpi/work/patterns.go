package work

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/mpi"
)

// ring passes a token round all ranks. Each adds to it, so that who passes it twice
// or changes it is found out by the next.
func ring() *Workload {
	return runner(&Workload{
		Name: "ring", Title: "a token round all ranks", Paper: "the runtime's own",
		MinRanks: 2, RankRule: AnyCount, Sized: true,
	}, func(j *job) error {
		n := max(j.p.Bytes, 8)
		if j.p.Bytes == 0 {
			n = 64
		}
		return goRound(j, n, j.steps(map[Class]int{ClassT: 2, ClassS: 20, ClassW: 200, ClassA: 2000}[j.p.Class]))
	})
}

// goRound passes a token of n bytes round all ranks, some laps.
func goRound(j *job, n, laps int) error {
	token := make([]byte, n)
	fill(token[8:], j.message(0, 0, 0))
	me, size := j.Rank(), j.Size()
	left, right := (me+size-1)%size, (me+1)%size
	if err := j.start(); err != nil {
		return err
	}
	for lap := range laps {
		if me == 0 {
			if err := passToken(j, token, right); err != nil {
				return err
			}
		}
		if _, err := j.Recv(token, left, 1); err != nil {
			return err
		}
		hops := uint64(lap*size + me)
		if me == 0 {
			hops += uint64(size)
		}
		if err := j.same(hops, binary.LittleEndian.Uint64(token), "hops of the token on lap %d", lap); err != nil {
			return err
		}
		if err := j.contents(token[8:], j.message(0, 0, 0), "the token's body on lap %d", lap); err != nil {
			return err
		}
		if me != 0 {
			if err := passToken(j, token, right); err != nil {
				return err
			}
		}
	}
	hop, err := j.fromRoot(j.stop().Seconds() / float64(laps*size))
	j.figure("time a hop", hop*1e6, "us")
	return err
}

func passToken(j *job, token []byte, to int) error {
	binary.LittleEndian.PutUint64(token, binary.LittleEndian.Uint64(token)+1)
	j.compute(1)
	return j.Send(token, to, 1)
}

// neighbours exchanges messages with the two neighbours on each axis of a torus that
// has as many axes as there are ranks for, three at most: the pattern of programs on
// grids, whose partners do not grow in number with the ranks (Thesis §6.6.2). Receives
// are posted first.
func neighbours() *Workload {
	return runner(&Workload{
		Name: "neighbours", Title: "messages to both neighbours on each axis of a torus", Paper: "Thesis §6.6.2",
		MinRanks: 2, RankRule: AnyCount, Sized: true,
	}, func(j *job) error {
		n := j.p.Bytes
		if n == 0 {
			n = map[Class]int{ClassT: 1 << 10, ClassS: 8 << 10, ClassW: 32 << 10, ClassA: 128 << 10}[j.p.Class]
		}
		partners := newTorus(box(j.Size()), j.Rank()).partners()
		send, recv := make([][]byte, len(partners)), make([][]byte, len(partners))
		for i := range partners {
			send[i], recv[i] = make([]byte, n), make([]byte, n)
		}
		return j.rounds(map[Class]int{ClassT: 4, ClassS: 20, ClassW: 100, ClassA: 500}, func(round int) error {
			var rs []*mpi.Request
			for i, p := range partners {
				r, err := j.Irecv(recv[i], p.rank, p.way^1) // what goes up comes from below
				if err != nil {
					return err
				}
				rs = append(rs, r)
			}
			j.compute(2)
			for i, p := range partners {
				fill(send[i], j.message(j.Rank(), p.rank, round*8+p.way))
				r, err := j.Isend(send[i], p.rank, p.way)
				if err != nil {
					return err
				}
				rs = append(rs, r)
			}
			j.compute(2)
			if err := j.waitAll(rs...); err != nil {
				return err
			}
			for i, p := range partners {
				if err := j.contents(recv[i], j.message(p.rank, j.Rank(), round*8+(p.way^1)), "message from neighbour %d in round %d", p.rank, round); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// alltoall has every rank send something else to every other, by the runtime's own
// operation.
func alltoall() *Workload {
	return runner(&Workload{
		Name: "alltoall", Title: "a message from every rank to every other", Paper: "Thesis §6.6.2, Collectives ch. 6",
		MinRanks: 1, RankRule: AnyCount, Sized: true,
	}, func(j *job) error {
		n := j.p.Bytes
		if n == 0 {
			n = map[Class]int{ClassT: 8, ClassS: 1 << 10, ClassW: 8 << 10, ClassA: 32 << 10}[j.p.Class]
		}
		return j.rounds(map[Class]int{ClassT: 2, ClassS: 10, ClassW: 50, ClassA: 100}, exchangeAll(j, n))
	})
}

// exchangeAll is a round in which parts of n bytes go from everybody to everybody.
func exchangeAll(j *job, n int) func(round int) error {
	send, recv := make([]byte, n*j.Size()), make([]byte, n*j.Size())
	return func(round int) error {
		for to := range j.Size() {
			fill(send[to*n:][:n], j.message(j.Rank(), to, round))
		}
		j.compute(1)
		if err := j.Alltoall(send, recv); err != nil {
			return err
		}
		for from := range j.Size() {
			if err := j.contents(recv[from*n:][:n], j.message(from, j.Rank(), round), "part of rank %d in round %d", from, round); err != nil {
				return err
			}
		}
		return nil
	}
}

// rounds is the loop of workloads that do the same again and again: the class says how
// often.
func (j *job) rounds(byClass map[Class]int, do func(round int) error) error {
	return j.repeat(j.steps(byClass[j.p.Class]), "time a round", do)
}

// repeat does something n times, and notes how long one takes.
func (j *job) repeat(n int, figure string, do func(round int) error) error {
	if err := j.start(); err != nil {
		return err
	}
	for round := range n {
		if err := do(round); err != nil {
			return err
		}
	}
	each, err := j.most(j.stop().Seconds() / float64(n))
	j.figure(figure, each*1e6, "us")
	return err
}
