package work

// torus is a rank's place on a periodic grid of ranks.
type torus struct {
	sides [3]int
	at    [3]int
}

func newTorus(sides [3]int, rank int) torus {
	return torus{sides, [3]int{rank % sides[0], rank / sides[0] % sides[1], rank / (sides[0] * sides[1])}}
}

// beside is the rank some steps along an axis.
func (t torus) beside(axis, steps int) int {
	at := t.at
	at[axis] = (at[axis] + steps + t.sides[axis]) % t.sides[axis]
	return at[0] + t.sides[0]*(at[1]+t.sides[1]*at[2])
}

// partner is a neighbour, and the way to it: twice the axis, and one more for up.
type partner struct{ rank, way int }

// partners are the neighbours on all axes that have more ranks than one. On an axis of
// two, both ways lead to the same.
func (t torus) partners() (all []partner) {
	for axis, side := range t.sides {
		if side > 1 {
			all = append(all, partner{t.beside(axis, -1), 2 * axis}, partner{t.beside(axis, 1), 2*axis + 1})
		}
	}
	return all
}
