package work

import (
	"math"
	"math/cmplx"
	"testing"
)

// Neighbour is the workload of docs/mpi.md, as an entry of All.
var Neighbour = pattern("neighbour", "every rank sends to the next one", "the runtime's own", neighbour)

func TestFFTMatchesDFT(t *testing.T) {
	for _, n := range []int{1, 2, 8, 32} {
		x := make([]complex128, n)
		for i := range x {
			x[i] = complex(uniform(key(uint64(i))), uniform(key(uint64(i), 1)))
		}
		got := append([]complex128(nil), x...)
		newFFT(n).transform(got, forward)
		for k := range got {
			want := complex128(0)
			for i, v := range x {
				want += v * cmplx.Rect(1, -2*math.Pi*float64(i*k)/float64(n))
			}
			if cmplx.Abs(want-got[k]) > 1e-12 {
				t.Fatalf("%d points: mode %d is %v, not %v", n, k, got[k], want)
			}
		}
		newFFT(n).transform(got, backward)
		for i := range got {
			if cmplx.Abs(got[i]-x[i]) > 1e-13 {
				t.Fatalf("%d points: after both transforms, %d is %v, not %v", n, i, got[i], x[i])
			}
		}
	}
}

// Rank grids have as many ranks as given, and every rank has neighbours.
func TestRankGridsAndBlocks(t *testing.T) {
	for n := 1; n <= 130; n++ {
		if s := box(n); s[0]*s[1]*s[2] != n || s[0] < s[1] || s[1] < s[2] {
			t.Errorf("box of %d: %v", n, s)
		}
		if r, c := rectangle(n); r*c != n || r > c {
			t.Errorf("rectangle of %d: %d × %d", n, r, c)
		}
		if r := isqrt(n); r*r > n || (r+1)*(r+1) <= n {
			t.Errorf("root of %d: %d", n, r)
		}
	}
	if s := box(64); s != [3]int{4, 4, 4} {
		t.Errorf("box of 64: %v", s)
	}
	for rank := range 24 {
		here := newTorus([3]int{4, 3, 2}, rank)
		for axis := range 3 {
			for _, d := range []int{-1, 1} {
				if back := newTorus(here.sides, here.neighbour(axis, d)).neighbour(axis, -d); back != rank {
					t.Errorf("from rank %d along axis %d and back: %d", rank, axis, back)
				}
			}
		}
	}
}

// Every element of a matrix is at one index of one rank.
func TestBlockCyclicCoversMatrix(t *testing.T) {
	const n, block, ranks = 37, 4, 6
	seen := map[[2]int]int{}
	for rank := range ranks {
		d := newBlockCyclic(1, n, block, ranks, rank)
		for i := range d.rows.owned {
			for k := range d.columns.owned {
				row, column := d.rows.global(i), d.columns.global(k)
				seen[[2]int{row, column}]++
				if d.rankAt(d.rows.owner(row), d.columns.owner(column)) != rank || d.rows.local(row) != i || d.columns.local(column) != k || d.rows.before(row) != i || d.columns.before(column) != k {
					t.Fatalf("rank %d: element (%d, %d) at (%d, %d)", rank, row, column, i, k)
				}
			}
		}
	}
	if len(seen) != n*(n+1) {
		t.Errorf("%d elements of %d", len(seen), n*(n+1))
	}
	for at, times := range seen {
		if times != 1 || at[0] >= n || at[1] > n {
			t.Errorf("element %v occurs %d times", at, times)
		}
	}
}

// Elimination inverts the operators of bt and sp, however lines are divided.
func TestLineSolversInvertTheirOperators(t *testing.T) {
	for name, s := range map[string]*lineSolver{"bt": &blockSolver, "sp": &pentaSolver} {
		a := newADI(3, 9, 1, 0, s)
		a.makeRightSide(1)
		a.solve()
		c := a.cells[0]
		c.each(func(at [3]int, _ int) {
			got := c.at(at)
			for v, want := range a.exact(at) {
				if math.Abs(want-got[v]) > adiBound {
					t.Fatalf("%s: unknown %d at %v is %v, not %v", name, v, at, got[v], want)
				}
			}
		})
	}
}

// A wrong byte is found at every offset.
func TestFirstDifferenceFindsEveryByte(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 40, 43} {
		buf := make([]byte, n)
		fill(buf, 5)
		if at, _ := firstDifference(buf, 5); at >= 0 {
			t.Errorf("%d bytes: wrong at %d", n, at)
		}
		for at := range n {
			was := buf[at]
			buf[at] ^= 1
			if got, want := firstDifference(buf, 5); got != at || want != was {
				t.Errorf("%d bytes: an error at %d is found at %d, with %#x expected", n, at, got, want)
			}
			buf[at] = was
		}
		if at, _ := firstDifference(buf, 6); n > 0 && at < 0 {
			t.Errorf("%d bytes of two keys are equal", n)
		}
	}
}
