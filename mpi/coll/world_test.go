package coll

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

// testWorld executes the schedules of all ranks in memory, in a random order. A send completes when its
// receive has matched it.
type testWorld struct {
	ranks    []*testRank
	rng      *rand.Rand
	messages int
	// multicasts are not messages
	multicasts int
	received   int
	bytes      int
	copied     int // bytes
	// between nodes
	nodeMessages, nodeBytes int
	// delayed says that a message is received when deliver is called, and not at once.
	delayed bool
	// buffered says that sends complete at once, but for advertised ones.
	buffered bool
}

type testSend struct {
	from, to, tag int
	src           Slice  // of the sender
	snapshot      []byte // of src, when it was sent
	advertised    bool   // the receive must be, too
	multicast     bool
	arrived       bool
	received      bool
	done          bool
	copied        *testSend // by machine.Clone
}

// compareSource orders messages by sender and tag.
func (m *testSend) compareSource(from, tag int) int { return cmp.Or(m.from-from, m.tag-tag) }

// testRecv is a posted receive.
type testRecv struct {
	from, tag  int
	dst        Slice
	advertised bool
	multicast  bool
	then       []Step
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
	// transferSteps is the number of rounds with transfers, or of their parts that end with waits for sent messages
	// or certain peers.
	transferSteps int
	incoming      []*testSend // that it has not received: by sender and tag, in order
}

// addIncoming adds a message to this rank, after those with the same sender and tag.
func (k *testRank) addIncoming(m *testSend) {
	at, _ := slices.BinarySearchFunc(k.incoming, m, func(other, m *testSend) int { return cmp.Or(other.compareSource(m.from, m.tag), -1) })
	k.incoming = slices.Insert(k.incoming, at, m)
}

// findIncoming returns the index of the first message from a sender with a tag.
func (k *testRank) findIncoming(from, tag int) (at int, ok bool) {
	return slices.BinarySearchFunc(k.incoming, from, func(m *testSend, from int) int { return m.compareSource(from, tag) })
}

// slice returns the memory of s.
func (k *testRank) slice(s Slice) []byte { return k.buffers[s.Buf][s.Off : s.Off+s.Len : s.Off+s.Len] }

// mustWait reports whether a transfer is pending for which a step waits.
func (k *testRank) mustWait(s *Step) bool {
	waitsFor := func(peer int) bool { return s.Kind == Wait || s.Kind == WaitFor && s.Peer == peer }
	for _, m := range k.sends {
		if !m.done && (waitsFor(m.to) || s.Kind == WaitStarted && m.advertised || s.Kind == WaitSent) {
			return true
		}
	}
	for _, m := range k.recvs {
		if waitsFor(m.from) {
			return true
		}
	}
	return false
}

// shuffleSends changes the order of sends to ranks whose arrival is not known, at the start of them.
func (w *testWorld) shuffleSends(k *testRank) {
	steps := k.round.Steps
	end := k.next
	for end < len(steps) && steps[end].Kind == SendAdvertised {
		end++
	}
	if w.rng != nil && (k.next == 0 || steps[k.next-1].Kind != SendAdvertised) {
		run := steps[k.next:end]
		w.rng.Shuffle(len(run), func(i, j int) { run[i], run[j] = run[j], run[i] })
	}
}

// newTestWorld prepares a call of all ranks. prepare returns the call and the buffers of a rank.
func newTestWorld(alg *Algorithm, size int, seed uint64, combine func(into, from []byte), prepare func(rank int) (c Call, in, out []byte)) *testWorld {
	shared := map[int][]byte{} // by node
	w := &testWorld{rng: rand.New(rand.NewPCG(seed, 1))}
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
		progressed, received := false, w.received
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
		if !progressed && w.received == received {
			return fmt.Errorf("deadlock: %d ranks have not finished", left)
		}
	}
	return w.checkReceived()
}

// checkReceived returns an error if a message was not received.
func (w *testWorld) checkReceived() error {
	for i, k := range w.ranks {
		if len(k.incoming) > 0 {
			return fmt.Errorf("rank %d has not received %d messages, the first of rank %d", i, len(k.incoming), k.incoming[0].from)
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
	if s := (Step{Kind: Wait}); atEnd && k.mustWait(&s) || !atEnd && k.mustWait(&k.round.Steps[k.next]) {
		return false, nil
	}
	if atEnd {
		k.transferSteps += transferSteps(&k.round)
		k.sends = k.sends[:0]
		k.next = 0
		if w.delayed { // copies of the rank have the steps, too
			k.sends, k.round.Steps = nil, nil
		}
		k.finished = !k.schedule.Next(k.alg, &k.call, &k.round)
		return true, nil
	}
	w.shuffleSends(k)
	s := &k.round.Steps[k.next]
	k.next += 1 + s.Then
	return true, w.execute(k, s)
}

// transferSteps returns the number of parts of a round with transfers.
func transferSteps(r *Round) (n int) {
	isPart, waits := false, 0
	for _, s := range r.Steps {
		switch s.Kind {
		case Send, Recv, SendAdvertised, RecvAdvertised:
			isPart = true
		case WaitSent, WaitFor:
			if isPart {
				waits++
			}
			isPart = false
		default:
		}
	}
	if isPart {
		return waits + 1
	}
	return waits
}

// execute runs one step.
func (w *testWorld) execute(k *testRank, s *Step) error {
	switch s.Kind {
	case Multicast:
		w.multicast(k, s)
	case Send, Recv, SendAdvertised, RecvAdvertised, RecvMulticast:
		if s.Peer < 0 || s.Peer >= len(w.ranks) || s.Peer == k.call.Rank {
			return fmt.Errorf("transfer with rank %d", s.Peer)
		}
		if s.Kind == Recv || s.Kind == RecvAdvertised || s.Kind == RecvMulticast {
			k.recvs = append(k.recvs, testRecv{s.Peer, s.Tag, s.Dst, s.Kind == RecvAdvertised, s.Kind == RecvMulticast, k.round.Steps[k.next-s.Then : k.next]})
			return nil
		}
		data := k.slice(s.Src)
		m := &testSend{from: k.call.Rank, to: s.Peer, tag: s.Tag, src: s.Src, snapshot: bytes.Clone(data), advertised: s.Kind == SendAdvertised, arrived: !w.delayed}
		m.done = w.buffered && !m.advertised
		k.sends = append(k.sends, m)
		w.ranks[s.Peer].addIncoming(m)
		w.messages++
		w.bytes += len(data)
		if n := k.call.Nodes; n != nil && n.node[s.Peer] != k.call.myNode() {
			w.nodeMessages++
			w.nodeBytes += len(data)
		}
	case Copy:
		w.copied += s.Count * s.Src.Len
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
	case Wait, WaitFor, WaitStarted, WaitSent:
	}
	return nil
}

// multicast sends a copy of a segment to all other ranks.
func (w *testWorld) multicast(k *testRank, s *Step) {
	w.multicasts++
	data := bytes.Clone(k.slice(s.Src))
	for to := range w.ranks {
		if to != k.call.Rank {
			w.ranks[to].addIncoming(&testSend{from: k.call.Rank, to: to, tag: s.Tag, snapshot: data, multicast: true, arrived: !w.delayed, done: true})
		}
	}
}

// match completes the posted receives of a rank whose messages have arrived.
func (w *testWorld) match(k *testRank) error {
	if len(k.incoming) == 0 {
		return nil
	}
	var left []testRecv
	var then []Step
	for _, r := range k.recvs {
		at, ok := k.findIncoming(r.from, r.tag)
		if !ok || !k.incoming[at].arrived { // then later receives from this rank wait, too
			left = append(left, r)
			continue
		}
		m := k.incoming[at]
		k.incoming = slices.Delete(k.incoming, at, at+1)
		if err := w.receive(k, m, &r); err != nil {
			return err
		}
		then = append(then, r.then...)
	}
	k.recvs = left
	for i := range then {
		if err := w.execute(k, &then[i]); err != nil {
			return err
		}
	}
	return nil
}

// receive completes a receive with a message.
func (w *testWorld) receive(k *testRank, m *testSend, r *testRecv) error {
	switch dst := k.slice(r.dst); {
	case len(m.snapshot) != len(dst):
		return fmt.Errorf("received %d bytes from rank %d, want %d", len(m.snapshot), r.from, len(dst))
	case !m.done && !bytes.Equal(w.ranks[m.from].slice(m.src), m.snapshot):
		return fmt.Errorf("rank %d changed the data of a send before it completed", r.from)
	case m.advertised != r.advertised:
		return fmt.Errorf("of a send and its receive from rank %d one is advertised", r.from)
	case m.multicast != r.multicast:
		return fmt.Errorf("of a send and its receive from rank %d one is a multicast", r.from)
	default:
		copy(dst, m.snapshot)
	}
	m.done, m.received = true, true
	w.received++
	return nil
}
