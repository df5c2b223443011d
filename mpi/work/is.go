package work

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

// integerSort sorts keys as NPB's IS does: ranks count the keys of each bucket, assign buckets to
// ranks with a reduction, exchange the numbers of keys, and then the keys, in an all-to-all of few
// large messages (Sur 2006 §3.2: most of the volume; small ones are mostly control).
func integerSort(j *job) {
	size := map[Class]isSize{
		ClassT: {keys: 1 << 13, keyLimit: 1 << 11, buckets: 1 << 8, rounds: 3},
		ClassS: {keys: 1 << 16, keyLimit: 1 << 11, buckets: 1 << 9, rounds: 10},
		ClassW: {keys: 1 << 20, keyLimit: 1 << 16, buckets: 1 << 10, rounds: 10},
		ClassA: {keys: 1 << 23, keyLimit: 1 << 19, buckets: 1 << 10, rounds: 10},
	}[j.p.Class]
	s := newIntegerSort(j, size)
	for round := range j.setIterations(size.rounds) {
		// As NPB's IS, which changes some keys each time.
		if len(s.keys) > 0 {
			s.keys[round%len(s.keys)] = uint32(round % size.keyLimit)
		}
		j.timeSort(s.keys, s.sort)
	}
	j.reportSorted(size.keys)
}

type isSize struct{ keys, keyLimit, buckets, rounds int }

type bucketSort struct {
	j          *job
	size       isSize
	keys       []uint32
	sorted     []uint32
	send, recv []byte
	// counts are the numbers of keys of this rank by bucket, and totals those of all ranks.
	counts, totals []byte
}

// newIntegerSort draws the keys of this rank.
func newIntegerSort(j *job, size isSize) *bucketSort {
	s := &bucketSort{j: j, size: size, counts: make([]byte, 4*size.buckets), totals: make([]byte, 4*size.buckets)}
	from, to := partStart(size.keys, j.Size(), j.Rank()), partStart(size.keys, j.Size(), j.Rank()+1)
	for i := from; i < to; i++ {
		// The mean of four random numbers, as in NPB's IS: buckets differ in size.
		sum := uint64(0)
		for k := range uint64(4) {
			sum += key(j.p.Seed, uint64(i), k) % uint64(size.keyLimit)
		}
		s.keys = append(s.keys, uint32(sum/4))
	}
	return s
}

// bucket returns the bucket of a key.
func (s *bucketSort) bucket(k uint32) int { return int(k) * s.size.buckets / s.size.keyLimit }

// sort returns the sorted keys of this rank's buckets.
func (s *bucketSort) sort() []uint32 {
	le := binary.LittleEndian
	j, ranks := s.j, s.j.Size()
	mine := make([]int, s.size.buckets+1) // start of each bucket among this rank's keys
	for _, k := range s.keys {
		mine[s.bucket(k)+1]++
	}
	for b := range s.size.buckets {
		le.PutUint32(s.counts[4*b:], uint32(mine[b+1]))
		mine[b+1] += mine[b]
	}
	j.Allreduce(s.counts, s.totals, mpi.Uint32, mpi.Sum)
	owner, keysBefore := s.assignBuckets()
	j.checkEqual(uint64(s.size.keys), uint64(keysBefore[ranks]), "keys in all buckets")

	// Keys by bucket, and therefore by destination rank.
	s.send = resize(s.send, 4*len(s.keys))
	next := append([]int(nil), mine...)
	for _, k := range s.keys {
		b := s.bucket(k)
		le.PutUint32(s.send[4*next[b]:], k)
		next[b]++
	}
	sendCounts, recvCounts := make([]int, ranks), make([]int, ranks) // in bytes
	for b := range s.size.buckets {
		sendCounts[owner[b]] += 4 * (mine[b+1] - mine[b])
	}
	out, in := make([]byte, 4*ranks), make([]byte, 4*ranks)
	for r, n := range sendCounts {
		le.PutUint32(out[4*r:], uint32(n))
	}
	j.Alltoall(out, in)
	received := 0
	for r := range ranks {
		recvCounts[r] = int(le.Uint32(in[4*r:]))
		received += recvCounts[r]
	}
	j.checkEqual(uint64(4*(keysBefore[j.Rank()+1]-keysBefore[j.Rank()])), uint64(received), "bytes of keys to receive")
	s.recv = resize(s.recv, received)
	j.Alltoallv(s.send, sendCounts, s.recv, recvCounts)
	j.spendComputePart(1)
	s.sortReceived(received / 4)
	return s.sorted
}

// assignBuckets assigns buckets to ranks in order, with about as many keys everywhere. It
// returns the owner of each bucket, and the number of keys before each rank.
func (s *bucketSort) assignBuckets() (owner, keysBefore []int) {
	ranks := s.j.Size()
	owner, keysBefore = make([]int, s.size.buckets), make([]int, ranks+1)
	before := 0
	for b := range owner {
		owner[b] = min(before*ranks/s.size.keys, ranks-1)
		n := int(binary.LittleEndian.Uint32(s.totals[4*b:]))
		keysBefore[owner[b]+1] += n
		before += n
	}
	for r := range ranks {
		keysBefore[r+1] += keysBefore[r]
	}
	return owner, keysBefore
}

// sortReceived sorts the n received keys by counting how often each value occurs.
func (s *bucketSort) sortReceived(n int) {
	count := make([]uint32, s.size.keyLimit)
	for i := range n {
		k := binary.LittleEndian.Uint32(s.recv[4*i:])
		if int(k) >= s.size.keyLimit {
			s.j.failVerification(fmt.Sprintf("less than %d", s.size.keyLimit), k, "received key %d of %d", i, n)
		}
		count[k]++
	}
	s.sorted = s.sorted[:0]
	for k, c := range count {
		for range c {
			s.sorted = append(s.sorted, uint32(k))
		}
	}
}

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
	j.countChecks(len(keys), 4*len(keys))
	if j.Rank() < j.Size()-1 {
		binary.LittleEndian.PutUint32(b[:], last)
		j.Send(b[:], j.Rank()+1, tagLastKey)
	}
}

const tagLastKey = 900

// resize returns a buffer of n bytes, reusing buf if possible.
func resize(buf []byte, n int) []byte { return slices.Grow(buf[:0], n)[:n] }
