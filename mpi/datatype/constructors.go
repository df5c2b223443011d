package datatype

import (
	"fmt"
	"slices"
)

// Contiguous returns a type of count consecutive elements.
func Contiguous(count int, old *Type) (*Type, error) {
	b := newBuilder(old)
	b.checkCount("count", count)
	b.add(0, count, old)
	return b.build()
}

// Vector returns a type of blocks of elements, with a distance of stride elements between their starts.
func Vector(count, blockLength, stride int, old *Type) (*Type, error) {
	b := newBuilder(old)
	return b.vector(count, blockLength, b.extents("stride", stride, old), old)
}

// Hvector is Vector with a stride in bytes.
func Hvector(count, blockLength, stride int, old *Type) (*Type, error) {
	return newBuilder(old).vector(count, blockLength, stride, old)
}

// Indexed returns a type of blocks of elements at displacements, in elements.
func Indexed(blockLengths, displacements []int, old *Type) (*Type, error) {
	b := newBuilder(old)
	inBytes := slices.Clone(displacements)
	for i, d := range inBytes {
		inBytes[i] = b.extents("displacement", d, old)
	}
	return b.blocks(blockLengths, inBytes, func(int) *Type { return old })
}

// Hindexed is Indexed with displacements in bytes.
func Hindexed(blockLengths, displacements []int, old *Type) (*Type, error) {
	return newBuilder(old).blocks(blockLengths, displacements, func(int) *Type { return old })
}

// Struct returns a type of blocks of elements of different types at displacements, in bytes.
func Struct(blockLengths, displacements []int, types []*Type) (*Type, error) {
	b := newBuilder(types...)
	b.check(len(types) == len(blockLengths), "%d types for %d block lengths", len(types), len(blockLengths))
	return b.blocks(blockLengths, displacements, func(i int) *Type { return types[i] })
}

// Resized returns a type with the data of another one and another lower bound and extent.
func Resized(old *Type, lowerBound, extent int) (*Type, error) {
	b := newBuilder(old)
	b.checkSpan("lower bound", lowerBound)
	b.checkSpan("extent", extent)
	if b.err != nil {
		return nil, b.err
	}
	t := *old
	t.marks = bounds{true, lowerBound, lowerBound + extent}
	return &t, nil
}

// builder builds a type.
type builder struct {
	t   Type
	err error
}

// newBuilder returns a builder of a type that is made of others, which must not be nil.
func newBuilder(types ...*Type) *builder {
	b := &builder{}
	for i, t := range types {
		b.check(t != nil, "type %d is nil", i)
	}
	return b
}

// check sets the error unless the condition holds, or there is an error.
func (b *builder) check(holds bool, format string, args ...any) {
	if b.err == nil && !holds {
		b.err = fmt.Errorf("%w: "+format, append([]any{ErrArg}, args...)...)
	}
}

func (b *builder) checkCount(name string, n int) { b.check(n >= 0, "%s is %d", name, n) }

// checkSpan checks a distance in bytes.
func (b *builder) checkSpan(name string, n int) {
	b.check(n >= -maxSpan && n <= maxSpan, "%s of %d bytes is beyond the limit of %d", name, n, maxSpan)
}

// times returns the product of two numbers, and checks that it is below the limit. The name is that of the
// first one.
func (b *builder) times(name string, x, y int) int {
	if x == 0 || y == 0 || b.err != nil {
		return 0
	}
	n := x * y
	b.check(n/y == x && n >= -maxSpan && n <= maxSpan, "%s: %d times %d bytes are beyond the limit of %d", name, x, y, maxSpan)
	return n
}

// extents returns the bytes of a number of extents of a type.
func (b *builder) extents(name string, n int, old *Type) int {
	if b.err != nil {
		return 0
	}
	return b.times(name, n, old.Extent())
}

// vector adds blocks at equal distances in bytes.
func (b *builder) vector(count, blockLength, stride int, old *Type) (*Type, error) {
	b.checkCount("count", count)
	b.checkCount("block length", blockLength)
	b.checkSpan("stride", stride)
	last := b.times("count", count-1, stride)
	switch {
	case b.err != nil || count == 0:
	case stride == b.extents("block length", blockLength, old):
		b.add(0, b.times("count", count, blockLength), old)
	case blockLength == 0 || len(old.runs) == 0: // bounds only
		b.add(0, blockLength, old)
		b.add(last, blockLength, old)
	default:
		for i := 0; i < count && b.err == nil; i++ {
			b.add(i*stride, blockLength, old)
		}
	}
	return b.build()
}

// blocks adds blocks at displacements in bytes.
func (b *builder) blocks(lengths, displacements []int, typeOf func(i int) *Type) (*Type, error) {
	b.check(len(lengths) == len(displacements), "%d block lengths for %d displacements", len(lengths), len(displacements))
	for i := 0; i < len(lengths) && b.err == nil; i++ {
		b.check(lengths[i] >= 0, "block length %d is %d", i, lengths[i])
		b.check(displacements[i] >= -maxSpan && displacements[i] <= maxSpan, "displacement %d of %d bytes is beyond the limit of %d", i, displacements[i], maxSpan)
		b.add(displacements[i], lengths[i], typeOf(i))
	}
	return b.build()
}

// add adds n consecutive elements of a type.
func (b *builder) add(displacement, n int, old *Type) {
	if b.err != nil || n == 0 {
		return
	}
	extent := old.Extent()
	last := displacement + b.times("elements", n-1, extent)
	include := func(to *bounds, of bounds) {
		if of.isSet {
			to.include(min(displacement, last)+of.low, max(displacement, last)+of.end)
			b.checkSpan("lower bound", to.low)
			b.checkSpan("upper bound", to.end)
		}
	}
	include(&b.t.data, old.data)
	include(&b.t.marks, old.marks)
	b.t.align = max(b.t.align, old.align)
	b.t.size += b.times("elements", n, old.size)
	b.checkSpan("size", b.t.size)
	if offset, all, isOne := old.Run(n); isOne {
		b.addRun(displacement+offset, all)
		return
	}
	b.check(n <= maxRuns/len(old.runs), "%d elements have more than %d parts that are apart", n, maxRuns)
	for i := 0; i < n && b.err == nil; i++ {
		for _, r := range old.runs {
			b.addRun(displacement+i*extent+r.offset, r.n)
		}
	}
}

// addRun adds bytes after the others.
func (b *builder) addRun(offset, n int) {
	last := len(b.t.runs) - 1
	switch {
	case n == 0 || b.err != nil:
	case last >= 0 && b.t.runs[last].offset+b.t.runs[last].n == offset:
		b.t.runs[last].n += n
	default:
		b.check(last+1 < maxRuns, "a type has more than %d parts that are apart", maxRuns)
		b.t.runs = append(b.t.runs, run{offset, n})
	}
}

// build returns the type.
func (b *builder) build() (*Type, error) {
	if b.err != nil {
		return nil, b.err
	}
	b.t.sort()
	return &b.t, nil
}
