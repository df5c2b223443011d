package coll

import "testing"

// The messages of exchanges of nodes, and the bytes between nodes: those of all blocks that another node
// needs, once for each node or once for each pair of ranks.
func TestMessagesOfNodeExchanges(t *testing.T) {
	for _, p := range sizes() {
		for _, nodes := range placements(p) {
			n, pairs := nodes.count(), 0 // pairs of ranks of different nodes
			for node := range n {
				pairs += len(nodes.ranks(node)) * (p - len(nodes.ranks(node)))
			}
			const b = 12
			for _, c := range []struct {
				op    Op
				name  string
				flags int // from a leader to each other rank
				bytes int
			}{
				{Allgather, "shared-direct", 1, p * (n - 1) * b},
				{Allgather, "arrival-shared-direct", n, p * (n - 1) * b},
				{Alltoall, "shared-direct", 1, pairs * b},
				{Alltoall, "arrival-shared-direct", n, pairs * b},
			} {
				s := scenario{op: c.op, size: p, bytes: b, nodes: nodes}
				if alg := Find(c.op, c.name); s.fits(alg) {
					w, err := s.check(alg, 1)
					if err != nil {
						t.Fatal(err)
					}
					messages := (p-n)*(1+c.flags) + n*(n-1)
					if w.messages != messages || w.nodeMessages != n*(n-1) || w.nodeBytes != c.bytes {
						t.Errorf("%v %s with %d ranks on %d nodes sends %d messages, %d with %d bytes between nodes, want %d, %d and %d",
							c.op, c.name, p, n, w.messages, w.nodeMessages, w.nodeBytes, messages, n*(n-1), c.bytes)
					}
				}
			}
		}
	}
}
