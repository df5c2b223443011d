package coll

import "testing"

// The numbers of rounds with messages, of messages and of bytes that all ranks send, for p ranks and
// blocks or vectors of n bytes, with lg the logarithm of p. n is a multiple of p·elementBytes.
func TestMessagesAndBytesEqualClosedForms(t *testing.T) {
	every := func(int) bool { return true }
	powers := func(p int) bool { return p&(p-1) == 0 }
	even := func(p int) bool { return p%2 == 0 }
	for _, c := range []struct {
		op              Op
		name            string
		fits            func(p int) bool
		messages, bytes func(p, lg, n int) int
	}{
		{Barrier, "dissemination", every, func(p, lg, _ int) int { return p * lg }, nil},
		{Barrier, "tree", every, func(p, _, _ int) int { return 2 * (p - 1) }, nil},
		{Barrier, "linear", every, func(p, _, _ int) int { return 2 * (p - 1) }, nil},
		{Barrier, "multicast", every, edges, nil},
		{Barrier, "recursive-doubling", powers, func(p, lg, _ int) int { return p * lg }, nil},
		{Bcast, "binomial", every, edges, func(p, _, n int) int { return (p - 1) * n }},
		{Bcast, "linear", every, edges, func(p, _, n int) int { return (p - 1) * n }},
		{Bcast, "chain", every, edges, func(p, _, n int) int { return (p - 1) * n }},
		{Bcast, "multicast", every, func(int, int, int) int { return 0 }, func(int, int, int) int { return 0 }},
		{Bcast, "van-de-geijn", every, func(p, _, _ int) int { return (p - 1) * (p + 1) }, nil},
		{Bcast, "van-de-geijn", powers, nil, func(p, lg, n int) int { return n*lg/2 + (p-1)*n }},
		{Bcast, "scatter-doubling", powers, func(p, lg, _ int) int { return p - 1 + p*lg }, func(p, lg, n int) int { return n*lg/2 + (p-1)*n }},
		{Scatter, "linear", every, edges, func(p, _, n int) int { return (p - 1) * n }},
		{Scatter, "binomial", every, edges, nil},
		{Scatter, "binomial", powers, nil, func(p, lg, n int) int { return p * lg / 2 * n }},
		{Gather, "linear", every, edges, func(p, _, n int) int { return (p - 1) * n }},
		{Gather, "binomial", every, edges, nil},
		{Gather, "binomial", powers, nil, func(p, lg, n int) int { return p * lg / 2 * n }},
		{Allgather, "ring", every, all, allBytes},
		{Allgather, "bruck", every, func(p, lg, _ int) int { return p * lg }, allBytes},
		{Allgather, "recursive-doubling", powers, func(p, lg, _ int) int { return p * lg }, allBytes},
		{Allgather, "neighbour-exchange", even, func(p, _, _ int) int { return p * p / 2 }, allBytes},
		{Allgather, "spread", every, all, allBytes},
		{Allgather, "direct", every, all, allBytes},
		{Allgather, "arrival-direct", every, all, allBytes},
		{Allgather, "arrival-bruck", every, func(p, lg, _ int) int { return p * lg }, allBytes},
		{Allgather, "arrival-recursive-doubling", powers, func(p, lg, _ int) int { return p * lg }, allBytes},
		{Allgather, "gather-bcast", powers, func(p, _, _ int) int { return 2 * (p - 1) }, func(p, lg, n int) int { return p*lg/2*n + (p-1)*p*n }},
		{Alltoall, "pairwise", every, all, allBytes},
		{Alltoall, "exchange", powers, all, allBytes},
		{Alltoall, "spread", every, all, allBytes},
		{Alltoall, "direct", every, all, allBytes},
		{Alltoall, "arrival-direct", every, all, allBytes},
		{Alltoall, "bruck", every, func(p, lg, _ int) int { return p * lg }, nil},
		{Alltoall, "bruck", powers, nil, func(p, lg, n int) int { return p * lg * p / 2 * n }},
		{Reduce, "binomial", every, edges, func(p, _, n int) int { return (p - 1) * n }},
		{Reduce, "linear", every, edges, func(p, _, n int) int { return (p - 1) * n }},
		{Reduce, "rabenseifner", powers, func(p, lg, _ int) int { return p*lg + p - 1 }, func(p, lg, n int) int { return (p-1)*n + lg*n/2 }},
		{Allreduce, "recursive-doubling", powers, func(p, lg, _ int) int { return p * lg }, func(p, lg, n int) int { return p * lg * n }},
		{Allreduce, "reduce-bcast", every, func(p, _, _ int) int { return 2 * (p - 1) }, func(p, _, n int) int { return 2 * (p - 1) * n }},
		{Allreduce, "ring", every, func(p, _, _ int) int { return 2 * p * (p - 1) }, func(p, _, n int) int { return 2 * (p - 1) * n }},
		{Allreduce, "arrival-direct", every, func(p, _, _ int) int { return 2 * p * (p - 1) }, func(p, _, n int) int { return 2 * (p - 1) * n }},
		{Allreduce, "rabenseifner", powers, func(p, lg, _ int) int { return 2 * p * lg }, func(p, _, n int) int { return 2 * (p - 1) * n }},
		{ReduceScatter, "reduce-scatter", every, func(p, _, _ int) int { return 2 * (p - 1) }, func(p, _, n int) int { return (p-1)*p*n + (p-1)*n }},
		{ReduceScatter, "pairwise", every, all, allBytes},
		{ReduceScatter, "ring", every, all, allBytes},
		{ReduceScatter, "recursive-halving", powers, func(p, lg, _ int) int { return p * lg }, allBytes},
		{Scan, "recursive-doubling", every, func(p, lg, _ int) int { return p*lg - (1<<lg - 1) }, nil},
		{Scan, "linear", every, edges, func(p, _, n int) int { return (p - 1) * n }},
		{Exscan, "recursive-doubling", every, func(p, lg, _ int) int { return p*lg - (1<<lg - 1) }, nil},
		{Exscan, "linear", every, edges, func(p, _, n int) int { return (p - 1) * n }},
	} {
		for _, p := range sizes() {
			if !c.fits(p) {
				continue
			}
			s := scenario{op: c.op, size: p, bytes: 2 * p * elementBytes}
			w, err := s.check(Find(c.op, c.name), 1)
			if err != nil {
				t.Fatal(err)
			}
			if c.messages != nil && w.messages != c.messages(p, log2(p), s.bytes) {
				t.Errorf("%v %s with %d ranks sends %d messages, want %d", c.op, c.name, p, w.messages, c.messages(p, log2(p), s.bytes))
			}
			if c.bytes != nil && w.bytes != c.bytes(p, log2(p), s.bytes) {
				t.Errorf("%v %s with %d ranks sends %d bytes, want %d", c.op, c.name, p, w.bytes, c.bytes(p, log2(p), s.bytes))
			}
		}
	}
}

// The root of a multicast sends each segment once, whatever the number of ranks, and other ranks send messages only if
// it must wait for them.
func TestMulticastsEqualNumberOfSegments(t *testing.T) {
	for _, p := range sizes()[1:] {
		for n, want := range map[int]int{0: 1, 1: 1, testSegment: 1, testSegment + 1: 2, 150 * testSegment: 150} {
			for _, rendezvous := range []bool{false, true} {
				s := scenario{op: Bcast, size: p, bytes: n, root: p / 2, rendezvous: rendezvous}
				w, err := s.check(Find(Bcast, "multicast"), uint64(n))
				if err != nil {
					t.Fatal(err)
				}
				messages := 0
				if rendezvous {
					messages = p - 1
				}
				if w.multicasts != want || w.messages != messages {
					t.Errorf("%d bytes to %d ranks: %d multicasts and %d messages, want %d and %d", n, p, w.multicasts, w.messages, want, messages)
				}
			}
		}
		s := scenario{op: Barrier, size: p}
		if w, err := s.check(Find(Barrier, "multicast"), 1); err != nil || w.multicasts != 1 {
			t.Errorf("a barrier of %d ranks: %d multicasts, %v", p, w.multicasts, err)
		}
	}
}

// The numbers of messages and bytes of k-port algorithms with p ranks, k ports, and blocks of n bytes, and
// the number of rounds with messages of a rank (Qian 2010, §3.4). The logarithm of p to the base k+1 is lg.
func TestPortsEqualClosedForms(t *testing.T) {
	logRounds := func(p, k, lg int) int { return lg }
	directRounds := func(p, k, lg int) int { return (p - 1 + k - 1) / k }
	ofAll := func(p, k, lg int) int { return p * (p - 1) }
	ofExchange := func(p, k, lg int) int { return p * k * lg }
	ofRoot := func(p, k, lg int) int { return p - 1 }
	ofTree := func(p, k, lg int) int { return p * lg * k / (k + 1) }
	ofMoved := func(p, k, lg int) int { return p * k * lg * p / (k + 1) }
	for _, c := range []struct {
		op                      Op
		name                    string
		rounds, messages, bytes func(p, k, lg int) int // bytes in blocks
	}{
		{Scatter, "kport-direct", directRounds, ofRoot, ofRoot},
		{Scatter, "kport-binomial", nil, ofRoot, ofTree},
		{Gather, "kport-direct", directRounds, ofRoot, ofRoot},
		{Gather, "kport-binomial", nil, ofRoot, ofTree},
		{Allgather, "kport-direct", directRounds, ofAll, ofAll},
		{Allgather, "kport-bruck", logRounds, ofExchange, ofAll},
		{Allgather, "kport-exchange", logRounds, ofExchange, ofAll},
		{Alltoall, "kport-direct", directRounds, ofAll, ofAll},
		{Alltoall, "kport-bruck", logRounds, ofExchange, ofMoved},
		{Alltoall, "kport-exchange", logRounds, ofExchange, ofMoved},
	} {
		for k := 1; k <= maxPorts; k++ {
			for lg, p := 1, k+1; p <= 81; lg, p = lg+1, p*(k+1) {
				s := scenario{op: c.op, size: p, bytes: 12, ports: k}
				w, err := s.check(Find(c.op, c.name), 1)
				if err != nil {
					t.Fatal(err)
				}
				if w.messages != c.messages(p, k, lg) || w.bytes != s.bytes*c.bytes(p, k, lg) {
					t.Errorf("%v %s with %d ranks and %d ports sends %d messages and %d bytes, want %d and %d", c.op, c.name, p, k, w.messages, w.bytes, c.messages(p, k, lg), s.bytes*c.bytes(p, k, lg))
				}
				if got := w.ranks[0].transferSteps; c.rounds != nil && got != c.rounds(p, k, lg) {
					t.Errorf("%v %s with %d ranks and %d ports takes %d rounds, want %d", c.op, c.name, p, k, got, c.rounds(p, k, lg))
				}
			}
		}
	}
}

// Reductions with separate buffers combine the input with the data that is received first, and do not copy it.
func TestReductionsWithSeparateBuffersDoNotCopyVectors(t *testing.T) {
	const vector = 64 * elementBytes
	for _, c := range []struct {
		op     Op
		name   string
		copied int // by all ranks
	}{
		{Allreduce, "recursive-doubling", 0},
		{Allreduce, "reduce-bcast", 0},
		{Allreduce, "ring", 0},
		{Allreduce, "rabenseifner", 0},
		{Allreduce, "arrival-direct", vector}, // each rank its part
		{Reduce, "binomial", 0},
		{Reduce, "rabenseifner", 0},
	} {
		for _, p := range sizes()[1:] {
			s := scenario{op: c.op, size: p, bytes: vector}
			w, err := s.check(Find(c.op, c.name), 1)
			if err != nil {
				t.Fatal(err)
			}
			if w.copied != c.copied {
				t.Errorf("%v %s with %d ranks copies %d bytes, want %d", c.op, c.name, p, w.copied, c.copied)
			}
		}
	}
}

// edges is one message for each rank but the root.
func edges(p, _, _ int) int { return p - 1 }

// all is one message from each rank to each other one, and allBytes their bytes.
func all(p, _, _ int) int      { return p * (p - 1) }
func allBytes(p, _, n int) int { return p * (p - 1) * n }

func TestFindAndAlgorithms(t *testing.T) {
	names := map[string]bool{}
	for _, a := range algorithms {
		key := a.Op.String() + "/" + a.Name
		if names[key] || Find(a.Op, a.Name) != a {
			t.Errorf("%s is not unique", key)
		}
		names[key] = true
	}
	for op := range NumOps {
		list := Algorithms(op)
		if len(list) == 0 || list[0].Needs != 0 {
			t.Errorf("the first algorithm of %v has needs", op)
		}
	}
	if Find(Bcast, "bruck") != nil {
		t.Error("found a broadcast that does not exist")
	}
}
