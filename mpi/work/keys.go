package work

import (
	"encoding/binary"
	"slices"
)

// timeSort measures one sort of the keys of all ranks. It checks that the sorted keys are in
// order, and that none is missing, duplicate or changed.
func (j *job) timeSort(keys []uint32, sort func() []uint32) {
	before := j.digestKeys(keys)
	j.start()
	sorted := sort()
	j.stop()
	after := j.digestKeys(sorted)
	j.checkEqual(before[0], after[0], "number of keys of all ranks")
	j.checkEqual(before[1], after[1], "digest of the keys of all ranks")
	j.checkOrder(sorted)
}

// reportSorted adds the rate of all measured sorts of n keys.
func (j *job) reportSorted(n int) {
	longest := j.maxAll(j.elapsed.Seconds())
	j.addFigure("keys sorted", float64(n*j.iterations)/longest/1e6, "M/s")
}

// digestKeys returns the number of keys of all ranks, and the sum of their hashes.
func (j *job) digestKeys(keys []uint32) [2]uint64 {
	sum := uint64(0)
	for _, k := range keys {
		sum += mix(uint64(k))
	}
	digest := [2]uint64{uint64(len(keys)), sum}
	j.sumCounters(digest[:])
	return digest
}

// checkOrder checks the order of keys within and across ranks: each rank sends its last key, or
// the one that it received if it has none, to the next.
func (j *job) checkOrder(keys []uint32) {
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

// resize returns a buffer of n bytes, reusing buf if possible.
func resize(buf []byte, n int) []byte { return slices.Grow(buf[:0], n)[:n] }
