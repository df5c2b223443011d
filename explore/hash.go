package explore

import (
	"encoding/binary"
	"math/bits"
)

const (
	hashC1 = 0x87c37b91114253d5
	hashC2 = 0x4cf5ad432745937f
)

// Hash is MurmurHash3_x64_128 with seed 0, for fingerprints.
func Hash(b []byte) (sum [16]byte) {
	var h1, h2 uint64
	n := uint64(len(b))
	for ; len(b) >= 16; b = b[16:] {
		h1 ^= hashMix1(binary.LittleEndian.Uint64(b))
		h1 = (bits.RotateLeft64(h1, 27)+h2)*5 + 0x52dce729
		h2 ^= hashMix2(binary.LittleEndian.Uint64(b[8:]))
		h2 = (bits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	}
	var tail [16]byte
	copy(tail[:], b)
	h1 ^= hashMix1(binary.LittleEndian.Uint64(tail[:]))
	h2 ^= hashMix2(binary.LittleEndian.Uint64(tail[8:]))
	h1 ^= n
	h2 ^= n
	h1 += h2
	h2 += h1
	h1, h2 = hashFinal(h1), hashFinal(h2)
	h1 += h2
	h2 += h1
	binary.BigEndian.PutUint64(sum[:], h1)
	binary.BigEndian.PutUint64(sum[8:], h2)
	return sum
}

func hashMix1(k uint64) uint64 { return bits.RotateLeft64(k*hashC1, 31) * hashC2 }

func hashMix2(k uint64) uint64 { return bits.RotateLeft64(k*hashC2, 33) * hashC1 }

func hashFinal(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
