package nic

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestCeilPow2IsSmallest(t *testing.T) {
	for n, want := range []int{1, 1, 2, 4, 4, 8, 8, 8, 8, 16} {
		if got := CeilPow2(n); got != want {
			t.Errorf("CeilPow2(%d) = %d, want %d", n, got, want)
		}
	}
}

// A receive queue behaves like a FIFO list, for any size and after resizing.
func TestReceiveQueueMatchesList(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, depth := range []int{0, 1, 3, 4, 7, 100} {
		q := NewRecvQueue(depth, 2)
		var list []verbs.RecvWR
		longest := 0
		for id := range uint64(3000) {
			switch {
			case rng.IntN(100) == 0:
				q.Clear()
				list = nil
			case rng.IntN(50) == 0 && depth < 100:
				depth = len(list) + rng.IntN(5)
				q = q.resized(depth)
			case rng.IntN(5) < 3:
				wr := verbs.RecvWR{WRID: id, SGL: make([]verbs.SGE, rng.IntN(4))}
				for i := range wr.SGL {
					wr.SGL[i] = verbs.SGE{Addr: rng.Uint64(), Length: rng.Uint32N(100)}
				}
				err := q.Post(&wr)
				switch {
				case len(wr.SGL) > 2:
					if !errors.Is(err, verbs.ErrInvalid) {
						t.Fatalf("%d pieces: %v", len(wr.SGL), err)
					}
				case len(list) == depth:
					if !errors.Is(err, verbs.ErrNoMemory) {
						t.Fatalf("one beyond %d: %v", depth, err)
					}
				case err != nil:
					t.Fatal(err)
				default:
					list = append(list, verbs.RecvWR{WRID: id, SGL: slices.Clone(wr.SGL)})
				}
				clear(wr.SGL) // the application may reuse it
			case len(list) > 0:
				q.Take()
				list = list[1:]
			}
			check(t, &q, list)
			longest = max(longest, len(list))
		}
		if depth == 100 && longest <= firstRing {
			t.Errorf("at most %d receives waited: the ring has not grown", longest)
		}
	}
}

func check(t *testing.T, q *RecvQueue, list []verbs.RecvWR) {
	t.Helper()
	if int(q.Count()) != len(list) || q.Overfull() || q.MaxSGE() != 2 {
		t.Fatalf("%d receives wait, want %d; queue %v", q.Count(), len(list), q)
	}
	w := q.Peek()
	if len(list) == 0 {
		if w != nil {
			t.Fatalf("%+v from an empty queue", w)
		}
		return
	}
	var length uint32
	for _, s := range list[0].SGL {
		length += s.Length
	}
	if w.WRID != list[0].WRID || !slices.Equal(w.SGL, list[0].SGL) || w.Length != length {
		t.Fatalf("%+v of %d bytes, want %+v", w, w.Length, list[0])
	}
}

// The total length of a list does not overflow.
func TestSGELengthDoesNotOverflow(t *testing.T) {
	q := NewRecvQueue(1, 2)
	must.Do(t, q.Post(&verbs.RecvWR{SGL: []verbs.SGE{{Length: 1 << 31}, {Length: 1<<31 + 7}}}))
	if n := q.Peek().Length; n != 1<<32-1 {
		t.Errorf("length %d", n)
	}
}

func TestReceivesDoNotAllocate(t *testing.T) {
	q := NewRecvQueue(3, 2)
	wr := verbs.RecvWR{SGL: make([]verbs.SGE, 2)}
	if n := testing.AllocsPerRun(100, func() {
		if q.Post(&wr) != nil || q.Peek() == nil {
			t.Fatal("refused")
		}
		q.Take()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
