package mpihost

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestRanksShareSegmentsOfFile(t *testing.T) {
	f := must.Get(NewSharedMemory("host0"))(t)
	defer f.Close()
	a, errA := openSharedMemory(int(f.Fd()))
	b, errB := openSharedMemory(int(f.Fd()))
	must.Do(t, errors.Join(errA, errB))
	for i := range 50 {
		name, size := fmt.Sprint("segment ", i), 1+i*1000
		mine := must.Get(a.Segment(name, size))(t)
		for _, x := range mine {
			if x != 0 {
				t.Fatalf("%s is not zeroed", name)
			}
		}
		mine[0], mine[size-1] = byte(i), byte(i)
	}
	for i := range 50 {
		name, size := fmt.Sprint("segment ", i), 1+i*1000
		theirs, err := b.Segment(name, size)
		if err != nil || len(theirs) != size || theirs[0] != byte(i) || theirs[size-1] != byte(i) {
			t.Errorf("%s: %v", name, err)
		}
		if again, err := b.Segment(name, size); err != nil || &again[0] != &theirs[0] {
			t.Errorf("%s opened twice: %v", name, err)
		}
		if _, err := b.Segment(name, size+1); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s of another size: %v", name, err)
		}
	}
	for name, size := range map[string]int{"": 1, strings.Repeat("x", maxName+1): 1, "none": 0} {
		if _, err := a.Segment(name, size); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%q of %d bytes: %v", name, size, err)
		}
	}
	if _, err := a.Segment(strings.Repeat("x", maxName), 1); err != nil {
		t.Error(err)
	}
}

func TestSegmentLimit(t *testing.T) {
	f := must.Get(NewSharedMemory("host0"))(t)
	defer f.Close()
	s := must.Get(openSharedMemory(int(f.Fd())))(t)
	binary.NativeEndian.PutUint64(s.(*sharedFile).index, maxSegments)
	if _, err := s.Segment("one more", 1); err == nil || !strings.Contains(err.Error(), "segments is reached") {
		t.Error(err)
	}
	null := must.Get(os.Open(os.DevNull))(t)
	defer null.Close()
	if _, err := openSharedMemory(int(null.Fd())); err == nil || !strings.Contains(err.Error(), "is not the shared memory of this host") {
		t.Error(err)
	}
}
