package coll

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

// testWorld executes the schedules of all ranks in memory, in a random order. A send completes when its
// receive has matched it.
type testWorld struct {
	ranks    []*testRank
	sends    map[[2]int][]*testSend // by sender and receiver, in order
	rng      *rand.Rand
	messages int
	bytes    int
	// between nodes
	nodeMessages, nodeBytes int
}

type testSend struct {
	data, snapshot []byte
	done           bool
}

// testRecv is a posted receive.
type testRecv struct {
	from int
	dst  []byte
}

type testRank struct {
	call     Call
	alg      *Algorithm
	buffers  [NumBuffers][]byte
	round    Round
	schedule Schedule
	next     int
	sends    []*testSend
	recvs    []testRecv
	combine  func(into, from []byte) // into becomes from op into
	finished bool
}

// slice returns the memory of s.
func (k *testRank) slice(s Slice) []byte { return k.buffers[s.Buf][s.Off : s.Off+s.Len : s.Off+s.Len] }

// idle reports whether no transfer of the round is pending.
func (k *testRank) idle() bool {
	for _, s := range k.sends {
		if !s.done {
			return false
		}
	}
	return len(k.recvs) == 0
}

// newTestWorld prepares a call of all ranks. prepare returns the call and the buffers of a rank.
func newTestWorld(alg *Algorithm, size int, seed uint64, combine func(into, from []byte), prepare func(rank int) (c Call, in, out []byte)) *testWorld {
	shared := map[int][]byte{} // by node
	w := &testWorld{sends: map[[2]int][]*testSend{}, rng: rand.New(rand.NewPCG(seed, 1))}
	for rank := range size {
		k := &testRank{alg: alg, combine: combine}
		k.call, k.buffers[In], k.buffers[Out] = prepare(rank)
		k.call.Rank, k.call.Size = rank, size
		if n := k.call.Nodes; alg.shared != nil {
			const unused = 3 // bytes
			if k.call.Shared = alg.SharedBytes(&k.call) + unused; rank == n.ranks(k.call.myNode())[0] {
				shared[k.call.myNode()] = bytes.Repeat([]byte{0xa5}, k.call.Shared)
			}
			k.buffers[Shared] = shared[k.call.myNode()]
		}
		k.buffers[Scratch] = bytes.Repeat([]byte{0xa5}, alg.ScratchBytes(&k.call))
		w.ranks = append(w.ranks, k)
	}
	return w
}

// run executes the schedules to their end.
func (w *testWorld) run() error {
	for left := len(w.ranks); left > 0; {
		progressed := false
		for _, i := range w.rng.Perm(len(w.ranks)) {
			k := w.ranks[i]
			for !k.finished {
				did, err := w.step(k)
				if err != nil {
					return fmt.Errorf("rank %d: %w", i, err)
				}
				if !did {
					break
				}
				progressed = true
				if k.finished {
					left--
				}
				if w.rng.IntN(3) == 0 { // let another rank run
					break
				}
			}
		}
		if !progressed {
			return fmt.Errorf("deadlock: %d ranks have not finished", left)
		}
	}
	for pair, sends := range w.sends {
		if len(sends) > 0 {
			return fmt.Errorf("%d messages of rank %d to rank %d are not received", len(sends), pair[0], pair[1])
		}
	}
	return nil
}

// step runs the next step of a rank, and reports whether it could.
func (w *testWorld) step(k *testRank) (bool, error) {
	if err := w.match(k); err != nil {
		return false, err
	}
	atEnd := k.next == len(k.round.Steps)
	if (atEnd || k.round.Steps[k.next].Kind == Wait) && !k.idle() {
		return false, nil
	}
	if atEnd {
		k.sends = k.sends[:0]
		k.next = 0
		k.finished = !k.schedule.Next(k.alg, &k.call, &k.round)
		return true, nil
	}
	s := &k.round.Steps[k.next]
	k.next++
	return true, w.execute(k, s)
}

// execute runs one step.
func (w *testWorld) execute(k *testRank, s *Step) error {
	switch s.Kind {
	case Send, Recv:
		if s.Peer < 0 || s.Peer >= len(w.ranks) || s.Peer == k.call.Rank {
			return fmt.Errorf("transfer with rank %d", s.Peer)
		}
		if s.Kind == Recv {
			k.recvs = append(k.recvs, testRecv{s.Peer, k.slice(s.Dst)})
			return nil
		}
		data := k.slice(s.Src)
		m := &testSend{data: data, snapshot: bytes.Clone(data)}
		k.sends = append(k.sends, m)
		pair := [2]int{k.call.Rank, s.Peer}
		w.sends[pair] = append(w.sends[pair], m)
		w.messages++
		w.bytes += len(data)
		if n := k.call.Nodes; n != nil && n.node[s.Peer] != k.call.myNode() {
			w.nodeMessages++
			w.nodeBytes += len(data)
		}
	case Copy:
		for i := range s.Count {
			src, dst := s.Src, s.Dst
			src.Off += i * s.SrcStride
			dst.Off, dst.Len = dst.Off+i*s.DstStride, src.Len
			copy(k.slice(dst), k.slice(src))
		}
	case Combine: // the function changes its first argument
		dst, src := k.slice(s.Dst), k.slice(s.Src)
		k.combine(src, dst)
		copy(dst, src)
		for i := range src {
			src[i] = 0xdd
		}
	case CombineFirst:
		k.combine(k.slice(s.Dst), k.slice(s.Src))
	case Wait:
	}
	return nil
}

// match completes the posted receives of a rank whose messages have been sent.
func (w *testWorld) match(k *testRank) error {
	left := k.recvs[:0]
	for i, r := range k.recvs {
		pair := [2]int{r.from, k.call.Rank}
		earlier := false // an earlier receive from this rank still waits
		for _, o := range k.recvs[:i] {
			earlier = earlier || o.from == r.from
		}
		queue := w.sends[pair]
		if len(queue) == 0 || earlier {
			left = append(left, r)
			continue
		}
		m := queue[0]
		w.sends[pair] = queue[1:]
		if len(m.data) != len(r.dst) {
			return fmt.Errorf("received %d bytes from rank %d, want %d", len(m.data), r.from, len(r.dst))
		}
		if !bytes.Equal(m.data, m.snapshot) {
			return fmt.Errorf("rank %d changed the data of a send before it completed", r.from)
		}
		copy(r.dst, m.data)
		m.done = true
	}
	k.recvs = left
	return nil
}
