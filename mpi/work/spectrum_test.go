package work

import (
	"slices"
	"testing"
)

func TestSpectrumUsesBufferIExactlyITimes(t *testing.T) {
	for name, b := range map[string]*bufferSet{"paged": newPagedBuffers(30, 100), "packed": newPackedBuffers(30, 100)} {
		var uses []int
		for i := range b.count {
			times := 0
			b.eachOfSpectrum(func(buf []byte) {
				if &buf[0] == &b.at(i)[0] {
					times++
				}
			})
			uses = append(uses, times)
			if len(b.at(i)) != 100 {
				t.Errorf("%s: buffer %d has %d bytes", name, i, len(b.at(i)))
			}
		}
		for i, times := range uses {
			if times != i+1 {
				t.Errorf("%s: the uses of the buffers are %v", name, uses)
				break
			}
		}
	}
	if newPagedBuffers(2, 4097).stride != 8192 || newPackedBuffers(2, 4097).stride != 4097 {
		t.Error("wrong distances of buffers")
	}
}

// No buffer of a trip overlaps one of another trip, the warm-up trip -1 included.
func TestFreshBuffersAreNew(t *testing.T) {
	const trips = 5
	of, seen := freshBuffers(10, trips), map[*byte]bool{}
	for trip := -1; trip < trips; trip++ {
		send, recv := of(trip)
		seen[&send[0]], seen[&recv[0]] = true, true
	}
	if len(seen) != 2*(trips+1) {
		t.Errorf("%d different buffers in %d trips", len(seen), trips+1)
	}
	send, recv := sameBuffers(10, trips)(0)
	if again, _ := sameBuffers(10, trips)(1); &send[0] == &recv[0] || &send[0] == &again[0] {
		t.Error("buffers are shared")
	}
}

// Every rank but 0 is in the subtree of exactly one child of its parent.
func TestSubtreesDivideRanks(t *testing.T) {
	for ranks := 1; ranks < 40; ranks++ {
		var leaves []int
		below := 0 // ranks of the subtrees of rank 0's children
		for rank := range ranks {
			n := subtreeOf(rank, ranks)
			if n == 1 {
				leaves = append(leaves, rank)
			}
			if rank > 0 && rank&-rank == rank {
				below += n
			}
		}
		if below != ranks-1 || ranks > 1 && !slices.Contains(leaves, ranks-1) {
			t.Errorf("%d ranks: %d in subtrees, leaves %v", ranks, below, leaves)
		}
	}
}
