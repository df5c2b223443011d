package work

// torus is a rank's position on a periodic grid of ranks.
type torus struct {
	sides [3]int
	at    [3]int
}

// newTorus returns the position of a rank in a torus of ranks.
func newTorus(sides [3]int, rank int) torus {
	return torus{sides, [3]int{rank % sides[0], rank / sides[0] % sides[1], rank / (sides[0] * sides[1])}}
}

// neighbour is the rank at some steps along an axis.
func (t torus) neighbour(axis, steps int) int {
	at := t.at
	at[axis] = (at[axis] + steps + t.sides[axis]) % t.sides[axis]
	return at[0] + t.sides[0]*(at[1]+t.sides[1]*at[2])
}

// partner is a neighbour and its direction: twice the axis, plus one for the positive
// direction.
type partner struct{ rank, direction int }

// partners returns the neighbours on all axes with more than one rank. On an axis of two
// ranks both directions lead to the same rank.
func (t torus) partners() (all []partner) {
	for axis, side := range t.sides {
		if side > 1 {
			all = append(all, partner{t.neighbour(axis, -1), 2 * axis}, partner{t.neighbour(axis, 1), 2*axis + 1})
		}
	}
	return all
}
