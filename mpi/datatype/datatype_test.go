package datatype

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi/window"
)

// compare returns an error if a type differs from its type map, or count elements are not packed and unpacked as
// it says.
func compare(t *Type, m *typeMap, count int) error {
	low, end := t.TrueBounds()
	wantLow, wantEnd := m.trueBounds()
	got, want := [5]int{t.Size(), t.LowerBound(), t.Extent(), low, end}, [5]int{m.size(), m.lowerBound(), m.extent(), wantLow, wantEnd}
	if got != want {
		return fmt.Errorf("size, lower bound, extent and true bounds are %d, want %d", got, want)
	}
	places := m.bytes(count)
	used, overlaps, isRun := map[int]bool{}, false, true
	for i, at := range places {
		overlaps = overlaps || used[at]
		isRun = isRun && at == places[0]+i
		used[at] = true
	}
	if t.Overlap(count) != overlaps {
		return fmt.Errorf("%d elements overlap: %v, want %v", count, t.Overlap(count), overlaps)
	}
	if offset, n, ok := t.Run(count); ok != isRun || ok && n != len(places) || ok && n > 0 && offset != places[0] {
		return fmt.Errorf("%d elements are one run: %v, of %d bytes at %d, want %v", count, ok, n, offset, isRun)
	}
	return comparePacked(t, places, count, overlaps)
}

// comparePacked packs and unpacks elements whose bytes have given places.
func comparePacked(t *Type, places []int, count int, overlaps bool) error {
	first, last := 0, 0
	for _, at := range places {
		first, last = min(first, at), max(last, at)
	}
	buf, packed := make([]byte, last-first+1), make([]byte, len(places))
	for i := range buf {
		buf[i] = byte(i*7 + i/256 + 1)
	}
	if err := t.Pack(packed, buf, -first, count); err != nil {
		return err
	}
	want := make([]byte, len(places))
	for i, at := range places {
		want[i] = buf[at-first]
	}
	if !bytes.Equal(packed, want) {
		return fmt.Errorf("%d elements are packed as %x, want %x", count, packed, want)
	}
	unpacked := bytes.Repeat([]byte{0xee}, len(buf))
	err := t.Unpack(unpacked, -first, count, packed)
	if overlaps {
		if !errors.Is(err, ErrArg) {
			return fmt.Errorf("%d elements that overlap are unpacked: %w", count, err)
		}
		return nil
	}
	wantBuf := bytes.Repeat([]byte{0xee}, len(buf))
	for _, at := range places {
		wantBuf[at-first] = buf[at-first]
	}
	if err != nil || !bytes.Equal(unpacked, wantBuf) {
		return fmt.Errorf("%d elements are unpacked to %x, want %x: %w", count, unpacked, wantBuf, err)
	}
	return checkBounds(t, places, count)
}

// checkBounds checks that a buffer that is a byte shorter, at either end, is too short.
func checkBounds(t *Type, places []int, count int) error {
	if len(places) == 0 {
		return nil
	}
	low, high := slices.Min(places), slices.Max(places)
	if t.Check(high-low+1, -low, count) != nil || t.Check(high-low, -low, count) == nil || t.Check(high-low+1, -low-1, count) == nil {
		return fmt.Errorf("the data of %d elements is from %d to %d, but Check disagrees", count, low, high)
	}
	return nil
}

func TestRandomTypesEqualTheirTypeMaps(t *testing.T) {
	overlapping, runs := 0, 0
	for seed := range uint64(5000) {
		s := source(rand.New(rand.NewPCG(seed, 1)).IntN)
		typ, m, err := s.randomType(4)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(m.entries) > 2000 {
			continue
		}
		for count := range 4 {
			if err := compare(typ, m, count); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if typ.Overlap(3) {
			overlapping++
		}
		if _, _, isOne := typ.Run(3); isOne {
			runs++
		}
	}
	if overlapping < 100 || runs < 100 {
		t.Errorf("only %d types overlap, and %d are one run", overlapping, runs)
	}
}

// FuzzType builds a type from the input.
func FuzzType(f *testing.F) {
	for _, seed := range []string{"", "\x01\x00\x01\x02\x01\x03", "\x01\x05\x03\x01\x02\x01\x04\x03\x02\x01", "\x02\x01\x03\x01\x02\x03\x04\x05\x06\x07\x01\x02\x03"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		typ, m, err := source(func(n int) int {
			if len(input) == 0 {
				return 0
			}
			k := int(input[0])
			input = input[1:]
			return k % n
		}).randomType(5)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.entries) > 2000 {
			return
		}
		for count := range 4 {
			if err := compare(typ, m, count); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Types of the examples in MPI-3.1 §4.1, with the type maps that it gives.
func TestExamplesOfTheStandard(t *testing.T) {
	double, char, float := Of(window.Float64), Of(window.Byte), Of(window.Float32)
	pair := must.Get(Struct([]int{1, 1}, []int{0, 8}, []*Type{double, char}))(t) // example 4.1
	resized := must.Get(Resized(Of(window.Int32), -3, 9))(t)
	for _, c := range []struct {
		name              string
		t                 *Type
		err               error
		size, low, extent int
		runs              []run
	}{
		{"example 4.1", pair, nil, 9, 0, 16, []run{{0, 9}}},
		{"example 4.2", must.Get(Contiguous(3, pair))(t), nil, 27, 0, 48, []run{{0, 9}, {16, 9}, {32, 9}}},
		{"example 4.3", must.Get(Vector(2, 3, 4, pair))(t), nil, 54, 0, 112, []run{{0, 9}, {16, 9}, {32, 9}, {64, 9}, {80, 9}, {96, 9}}},
		{"example 4.4", must.Get(Vector(3, 1, -2, pair))(t), nil, 27, -64, 80, []run{{0, 9}, {-32, 9}, {-64, 9}}},
		{"example 4.5", must.Get(Indexed([]int{3, 1}, []int{4, 0}, pair))(t), nil, 36, 0, 112, []run{{64, 9}, {80, 9}, {96, 9}, {0, 9}}},
		{"example 4.6", must.Get(Struct([]int{2, 1, 3}, []int{0, 16, 26}, []*Type{float, pair, char}))(t), nil, 20, 0, 32, []run{{0, 8}, {16, 9}, {26, 3}}},
		{"markers", resized, nil, 4, -3, 9, []run{{0, 4}}},
		{"two markers", must.Get(Contiguous(2, resized))(t), nil, 8, -3, 18, []run{{0, 4}, {9, 4}}},
	} {
		if c.t.Size() != c.size || c.t.LowerBound() != c.low || c.t.Extent() != c.extent || fmt.Sprint(c.t.runs) != fmt.Sprint(c.runs) {
			t.Errorf("%s: size %d, lower bound %d, extent %d, runs %v, want %+v", c.name, c.t.Size(), c.t.LowerBound(), c.t.Extent(), c.t.runs, c)
		}
	}
}

func TestAdjacentRunsAreOne(t *testing.T) {
	double := Of(window.Float64)
	row := must.Get(Contiguous(1<<40, double))(t)
	matrix := must.Get(Vector(1<<10, 1, 1, row))(t)
	dense := must.Get(Hindexed([]int{2, 1, 3}, []int{0, 16, 24}, double))(t)
	for _, typ := range []*Type{row, matrix, dense} {
		if _, n, isOne := typ.Run(2); !isOne || n != 2*typ.Size() || len(typ.runs) != 1 {
			t.Errorf("%d bytes have %d runs", typ.Size(), len(typ.runs))
		}
	}
	if matrix.Size() != 1<<53 {
		t.Errorf("a matrix has %d bytes", matrix.Size())
	}
}

// A mistake is an error that names the argument.
func TestMistakesAreErrors(t *testing.T) {
	b := Of(window.Byte)
	big := must.Get(Contiguous(maxSpan, b))(t)
	result := func(_ *Type, err error) error { return err }
	for _, c := range []struct {
		err  error
		want string
	}{
		{result(Contiguous(-1, b)), "count is -1"},
		{result(Contiguous(2, big)), "beyond the limit"},
		{result(Contiguous(1, nil)), "type 0 is nil"},
		{result(Vector(-2, 1, 1, b)), "count is -2"},
		{result(Vector(1, -3, 1, b)), "block length is -3"},
		{result(Vector(2, 1, math.MinInt, b)), "stride"},
		{result(Vector(2, 1, math.MaxInt, big)), "beyond the limit"},
		{result(Vector(maxRuns+1, 1, 2, b)), "more than 1048576 parts"},
		{result(Hvector(math.MaxInt, 1, 2, b)), "beyond the limit"},
		{result(Indexed([]int{1}, []int{1, 2}, b)), "1 block lengths for 2 displacements"},
		{result(Indexed([]int{1}, []int{math.MaxInt / 2}, big)), "beyond the limit"},
		{result(Hindexed([]int{1, -4}, []int{0, 0}, b)), "block length 1 is -4"},
		{result(Hindexed([]int{1, 1}, []int{0, math.MinInt}, b)), "displacement 1 of"},
		{result(Struct([]int{1, 1}, []int{0, 8}, []*Type{b})), "1 types for 2 block lengths"},
		{result(Struct([]int{1, 1}, []int{0, 8}, []*Type{b, nil})), "type 1 is nil"},
		{result(Resized(b, math.MaxInt, 1)), "lower bound of"},
		{result(Resized(b, 0, math.MinInt)), "extent of"},
		{result(Resized(nil, 0, 1)), "type 0 is nil"},
		{b.Pack(make([]byte, 3), make([]byte, 4), 0, -1), "count is -1"},
		{b.Pack(make([]byte, 3), make([]byte, 4), 0, 2), "3 packed bytes"},
		{b.Pack(make([]byte, 3), make([]byte, 4), 2, 3), "from byte 2 to 5, in a buffer of 4 bytes"},
		{b.Pack(nil, make([]byte, 4), math.MaxInt, 1), "beyond the limit"},
		{big.Pack(nil, nil, 0, math.MaxInt), "beyond the limit"},
		{must.Get(Resized(Of(window.Int32), 0, 0))(t).Pack(nil, make([]byte, 4), 0, math.MaxInt/2), "beyond the limit"},
		{must.Get(Resized(b, 0, 0))(t).Unpack(make([]byte, 4), 0, 2, make([]byte, 2)), "overlaps"},
		{must.Get(Resized(must.Get(Contiguous(4, b))(t), 0, -3))(t).Unpack(make([]byte, 9), 5, 2, make([]byte, 8)), "an extent of -3 bytes overlaps"},
	} {
		if !errors.Is(c.err, ErrArg) || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%v, want %q", c.err, c.want)
		}
	}
}

// The columns of a matrix, of which several are packed at once: their elements alternate.
func TestPackAllocatesNothing(t *testing.T) {
	const n = 16
	column := must.Get(Resized(must.Get(Vector(n, 1, n, Of(window.Float64)))(t), 0, 8))(t)
	matrix, packed := make([]byte, 8*n*n), make([]byte, 8*n*n)
	if allocations := testing.AllocsPerRun(10, func() {
		must.Do(t, column.Pack(packed, matrix, 0, n))
		must.Do(t, column.Unpack(matrix, 0, n, packed))
	}); allocations > 0 {
		t.Errorf("%v allocations", allocations)
	}
}
