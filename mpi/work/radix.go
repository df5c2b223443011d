package work

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/mpi"
)

// radixSort sorts keys digit by digit, as the RADIX application does. In each pass ranks
// exchange how many keys they have of each digit (an allgather of 4 KB per rank in the
// larger classes, Qian 2010 §6.5.3), and compute where every key goes; the keys of one
// digit from one rank to another are a message. Of a pair of ranks one receives first and the other
// sends first; receives are started four at a time, with a wait for all four (Rashti 2010 §4.4.2,
// Fig. 4.18). Every rank communicates with every other (Rashti 2010 §6.6.2).
func radixSort(j *job) {
	size := map[Class]radixSize{
		ClassT: {keys: 1 << 12, digitBits: 4, digits: 2, rounds: 1},
		ClassS: {keys: 1 << 16, digitBits: 6, digits: 3, rounds: 2},
		ClassW: {keys: 1 << 20, digitBits: 8, digits: 3, rounds: 2},
		ClassA: {keys: 1 << 23, digitBits: 10, digits: 3, rounds: 2},
		ClassB: {keys: 1 << 25, digitBits: 7, digits: 2, rounds: 1},
	}[j.p.Class]
	for round := range j.setIterations(size.rounds) {
		s := newRadix(j, size, round)
		j.timeSort(s.keys, s.sort)
	}
	j.reportSorted(size.keys)
}

type radixSize struct{ keys, digitBits, digits, rounds int }

// radix is a rank's part of the sort.
type radix struct {
	j          *job
	size       radixSize
	keys       []uint32
	hist       []byte // keys of this rank by digit
	all        []byte // hist of all ranks
	send, recv []byte
	incoming   [][]chunk // by source rank
}

// chunk is n keys of one digit from one rank, from index at on in the send or receive buffer.
type chunk struct{ at, n int }

// newRadix draws the keys of this rank for a round.
func newRadix(j *job, size radixSize, round int) *radix {
	values := 1 << size.digitBits
	s := &radix{j: j, size: size, hist: make([]byte, 4*values), all: make([]byte, 4*values*j.Size())}
	for i := partStart(size.keys, j.Size(), j.Rank()); i < partStart(size.keys, j.Size(), j.Rank()+1); i++ {
		k := key(j.p.Seed, uint64(round), uint64(i))
		s.keys = append(s.keys, uint32(k)&(1<<(size.digitBits*size.digits)-1))
	}
	s.send, s.recv = make([]byte, 4*len(s.keys)), make([]byte, 4*len(s.keys))
	s.incoming = make([][]chunk, j.Size())
	return s
}

// sort returns the sorted keys of this rank.
func (s *radix) sort() []uint32 {
	for d := range s.size.digits {
		s.pass(d)
	}
	return s.keys
}

// pass sorts by one digit, stably. After it each rank has its part of the keys of all ranks, in the
// order of the digit.
func (s *radix) pass(digit int) {
	defer annotateError("pass %d", digit)
	le := binary.LittleEndian
	j, shift, values := s.j, digit*s.size.digitBits, 1<<s.size.digitBits
	mask := uint32(values - 1)
	begin := make([]int, values+1)
	for _, k := range s.keys {
		begin[k>>shift&mask+1]++
	}
	for v := range values {
		le.PutUint32(s.hist[4*v:], uint32(begin[v+1]))
		begin[v+1] += begin[v]
	}
	j.Allgather(s.hist, s.all)
	s.checkCounts()
	next := append([]int(nil), begin...)
	for _, k := range s.keys {
		v := k >> shift & mask
		le.PutUint32(s.send[4*next[v]:], k)
		next[v]++
	}
	out := s.plan(begin)
	j.spendComputePart(1)
	// In each round ranks form pairs. The lower rank receives first, lest both block in Send.
	for round := range j.Size() {
		peer := (round - j.Rank() + j.Size()) % j.Size()
		switch {
		case peer == j.Rank():
			in := s.incoming[peer]
			j.checkEqual(uint64(len(in)), uint64(len(out[peer])), "chunks that stay")
			for i, c := range out[peer] {
				copy(s.recv[4*in[i].at:4*(in[i].at+in[i].n)], s.send[4*c.at:])
			}
		case peer > j.Rank():
			s.receive(peer)
			s.sendChunks(peer, out[peer])
		default:
			s.sendChunks(peer, out[peer])
			s.receive(peer)
		}
	}
	must(binary.Decode(s.recv, le, s.keys))
}

// checkCounts checks the counts of all ranks, from which the destinations are computed.
func (s *radix) checkCounts() {
	n, ranks := len(s.hist), s.j.Size()
	s.j.checkBytes(s.hist, s.all[n*s.j.Rank():][:n], "own counts")
	for rank := range ranks {
		sum := uint64(0)
		for at := n * rank; at < n*(rank+1); at += 4 {
			sum += uint64(binary.LittleEndian.Uint32(s.all[at:]))
		}
		want := partStart(s.size.keys, ranks, rank+1) - partStart(s.size.keys, ranks, rank)
		s.j.checkEqual(uint64(want), sum, "number of keys that rank %d announced", rank)
	}
}

// plan returns the chunks that this rank sends, by destination rank, and stores those to receive in
// s.incoming. begin is where the keys of each digit value begin in s.send.
func (s *radix) plan(begin []int) [][]chunk {
	j, ranks, values := s.j, s.j.Size(), 1<<s.size.digitBits
	first, end := partStart(s.size.keys, ranks, j.Rank()), partStart(s.size.keys, ranks, j.Rank()+1)
	out := make([][]chunk, ranks)
	for r := range s.incoming {
		s.incoming[r] = s.incoming[r][:0]
	}
	at, owner := 0, 0 // destination of the next key, and its owner
	for v := range values {
		for from := range ranks {
			n := int(binary.LittleEndian.Uint32(s.all[4*(from*values+v):]))
			for done := 0; done < n; {
				for partStart(s.size.keys, ranks, owner+1) <= at {
					owner++
				}
				k := min(n-done, partStart(s.size.keys, ranks, owner+1)-at)
				if from == j.Rank() {
					out[owner] = append(out[owner], chunk{begin[v] + done, k})
				}
				if at >= first && at < end {
					s.incoming[from] = append(s.incoming[from], chunk{at - first, k})
				}
				at, done = at+k, done+k
			}
		}
	}
	return out
}

// receive receives the chunks of a rank, four at a time.
func (s *radix) receive(from int) {
	in := s.incoming[from]
	for len(in) > 0 {
		four := in[:min(4, len(in))]
		in = in[len(four):]
		rs := make([]*mpi.Request, len(four))
		for i, c := range four {
			rs[i] = s.j.Irecv(s.recv[4*c.at:4*(c.at+c.n)], from, tagChunk)
		}
		s.j.waitAll(rs...)
	}
}

func (s *radix) sendChunks(to int, out []chunk) {
	for _, c := range out {
		s.j.Send(s.send[4*c.at:4*(c.at+c.n)], to, tagChunk)
	}
}

const tagChunk = 902
