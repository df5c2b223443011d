package work

import (
	"encoding/binary"
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

// sortCheck holds a digest of all keys before sorting, to detect missing, duplicate and
// changed keys.
type sortCheck struct {
	j      *job
	before [2]uint64 // number of keys, and a sum of their hashes
}

// timeSort measures one sort of the keys of all ranks and checks its result.
func (j *job) timeSort(keys []uint32, sort func() []uint32) {
	check := sortCheck{j: j}
	check.before = check.all(keys)
	j.start()
	sorted := sort()
	j.stop()
	check.check(sorted)
}

// reportSorted adds the rate of all measured sorts of n keys.
func (j *job) reportSorted(n int) {
	longest := j.maxAll(j.elapsed.Seconds())
	j.addFigure("keys sorted", float64(n*j.iterations)/longest/1e6, "M/s")
}

// digest returns the digest of a rank's keys.
func digest(keys []uint32) (d [2]uint64) {
	d[0] = uint64(len(keys))
	for _, k := range keys {
		d[1] += mix(uint64(k))
	}
	return d
}

func (s *sortCheck) all(keys []uint32) [2]uint64 {
	d := digest(keys)
	b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, d[0]), d[1])
	s.j.Allreduce(b, mpi.Uint64, mpi.Sum)
	return [2]uint64{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

// check compares the digests, and checks the order of keys within and across ranks: each
// sends its last key, or the last before it, to the next.
func (s *sortCheck) check(keys []uint32) {
	j := s.j
	after := s.all(keys)
	j.checkEqual(s.before[0], after[0], "number of keys of all ranks")
	j.checkEqual(s.before[1], after[1], "digest of the keys of all ranks")
	last := uint32(0)
	var b [4]byte
	if j.Rank() > 0 {
		j.Recv(b[:], j.Rank()-1, tagLastKey)
		last = binary.LittleEndian.Uint32(b[:])
	}
	for i, k := range keys {
		if k < last {
			j.failVerification("at least its predecessor", k, "key %d of %d, after %d", i, len(keys), last)
		}
		last = k
	}
	j.checked(len(keys), 4*len(keys))
	if j.Rank() < j.Size()-1 {
		binary.LittleEndian.PutUint32(b[:], last)
		j.Send(b[:], j.Rank()+1, tagLastKey)
	}
}

const tagLastKey = 900

// putKeys and getKeys write and read keys.
func putKeys(to []byte, keys []uint32) {
	for i, k := range keys {
		binary.LittleEndian.PutUint32(to[4*i:], k)
	}
}

func getKeys(keys []uint32, from []byte) {
	for i := range keys {
		keys[i] = binary.LittleEndian.Uint32(from[4*i:])
	}
}

// resize returns a buffer of n bytes, reusing buf if possible.
func resize(buf []byte, n int) []byte { return slices.Grow(buf[:0], n)[:n] }
