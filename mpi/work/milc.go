package work

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// latticeGauge has the messages of the conjugate gradient of SPEC MPI2007's 104.milc (su3imp of the
// MILC code). Ranks divide a lattice of four dimensions. The matrix couples the sites of one parity
// with those of the other, at a distance of one and of three: a step multiplies by it twice, each
// time with vectors of three complex numbers of single precision from the nearest layer, and from the
// three nearest layers, of both neighbours on each divided axis. It starts all nonblocking sends in
// the positive directions, then in the negative ones, and waits in the same order. The buffers are
// the same in each step, as restart_gather of MILC has them (Rashti 2010 Table 5.1). A step has two
// sums over all ranks.
func latticeGauge(j *job) {
	size := milcSizes[j.p.Class]
	l := newMILC(j, size.lattice)
	for step := range milcWarmUp {
		l.step(step)
	}
	j.start()
	for step := range j.setIterations(size.steps) {
		l.step(milcWarmUp + step)
	}
	j.stop()
	j.addFigure("longest message", float64(l.longest), "B")
}

// milcSizes are the problems by class. A is the sample input of SPEC's description of 104.milc. W is
// assumed: on 16 ranks its longest messages of a layer have the published 4,800 B (Rashti 2010 Table
// 5.1), for the publication does not name its input.
var milcSizes = map[Class]milcSize{
	ClassT: {[4]int{8, 8, 8, 8}, 3},
	ClassS: {[4]int{16, 16, 8, 8}, 20},
	ClassW: {[4]int{20, 20, 10, 8}, 100},
	ClassA: {[4]int{30, 30, 56, 84}, 100},
}

// milcSize is a lattice, with its sites along each axis, and the number of steps.
type milcSize struct {
	lattice [4]int
	steps   int
}

const (
	milcWarmUp    = 10    // steps that are not measured
	milcSiteBytes = 3 * 8 // a vector of three complex numbers of single precision
	milcReach     = 3     // sites that the matrix couples are up to so far apart
)

// milcParts divides a lattice among ranks as MILC does: it halves the part of a rank along its
// longest axis that is even, again and again. The number of ranks is a power of two.
func milcParts(lattice [4]int, ranks int) (parts [4]int, ok bool) {
	parts = [4]int{1, 1, 1, 1}
	for ; ranks > 1; ranks /= 2 {
		longest := -1
		for axis, side := range lattice {
			if n := side / parts[axis]; n%2 == 0 && (longest < 0 || n > lattice[longest]/parts[longest]) {
				longest = axis
			}
		}
		if longest < 0 || lattice[longest]/parts[longest] < 2*milcReach {
			return parts, false
		}
		parts[longest] *= 2
	}
	return parts, true
}

// milcUnfitReason returns why a number of ranks cannot share the lattice of a class; "" if it can.
func milcUnfitReason(c Class, ranks int) string {
	if _, ok := milcParts(milcSizes[c].lattice, ranks); !ok {
		return fmt.Sprintf("parts of a lattice of %v sites with less than %d along an axis", milcSizes[c].lattice, milcReach)
	}
	return ""
}

// milc is a rank's part of the lattice.
type milc struct {
	j *job
	// gathers are the messages of a product, by the parity of the sites that are multiplied and by the
	// sign of the direction.
	gathers [2][2][]gather
	longest int // bytes of a message
}

// gather is a message to a neighbour, and the one from the opposite neighbour.
type gather struct {
	to, from      int
	number        int // unique in a step
	send, recv    []byte
	arrived, sent *mpi.Request
}

// newMILC finds the neighbours of a rank, and allocates a buffer for each gather.
func newMILC(j *job, lattice [4]int) *milc {
	l := &milc{j: j}
	parts, _ := milcParts(lattice, j.Size())
	stride := 1 // from a rank to the next one along the axis
	for axis, n := range parts {
		if n > 1 { // else there is no neighbour
			layer := milcSiteBytes / 2 // bytes of the sites of one parity
			for other, m := range parts {
				if other != axis {
					layer *= lattice[other] / m
				}
			}
			at := j.Rank() / stride % n
			l.addAxis(axis, j.Rank()+((at+1)%n-at)*stride, j.Rank()+((at+n-1)%n-at)*stride, layer)
		}
		stride *= n
	}
	return l
}

// addAxis adds the gathers of an axis, with messages of one layer and of three, to and from the
// neighbours up and down. A layer has the given number of bytes.
func (l *milc) addAxis(axis, up, down, layer int) {
	for parity := range l.gathers {
		for i, layers := range []int{1, milcReach} {
			bytes := layers * layer
			l.longest = max(l.longest, bytes)
			for sign, to := range []int{up, down} {
				g := gather{to: to, from: up + down - to, number: ((parity*4+axis)*2+i)*2 + sign}
				g.send, g.recv = make([]byte, bytes), make([]byte, bytes)
				l.gathers[parity][sign] = append(l.gathers[parity][sign], g)
			}
		}
	}
}

// step exchanges the vectors of two products, and sums twice over all ranks, as inner products do.
func (l *milc) step(step int) {
	for parity := range l.gathers {
		l.multiply(step, parity)
	}
	for range 2 {
		l.j.checkWithin(float64(l.j.Size()), l.j.sumAll(1), exactly, "ranks that took part in a sum of step %d", step)
	}
}

// multiply exchanges the vectors that the sites of a parity need for a product, and checks them.
func (l *milc) multiply(step, parity int) {
	j := l.j
	const numbers = 2 * 4 * 2 * 2 // of gathers in a step
	for sign := range l.gathers[parity] {
		for i := range l.gathers[parity][sign] {
			g := &l.gathers[parity][sign][i]
			fill(g.send, j.messageKey(j.Rank(), g.to, step*numbers+g.number))
			g.arrived = j.Irecv(g.recv, g.from, g.number)
			g.sent = j.Isend(g.send, g.to, g.number)
		}
		j.spendComputePart(2 * 2) // half of a product
	}
	for sign := range l.gathers[parity] {
		for i := range l.gathers[parity][sign] {
			g := &l.gathers[parity][sign][i]
			j.waitAll(g.arrived, g.sent)
			j.checkContents(g.recv, j.messageKey(g.from, j.Rank(), step*numbers+g.number), "gather %d of step %d from rank %d", g.number, step, g.from)
		}
	}
}
