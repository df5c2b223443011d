package nic

import (
	"encoding/binary"
	"math/bits"
)

// SipHash returns the SipHash-2-4 of input whose length is a multiple of eight. It is
// unpredictable without the key, and cheap enough to be computed for every packet.
func SipHash(key *[16]byte, in []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:]), binary.LittleEndian.Uint64(key[8:])
	v0, v1, v2, v3 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d, k0^0x6c7967656e657261, k1^0x7465646279746573
	round := func() {
		v0 += v1
		v2 += v3
		v1 = bits.RotateLeft64(v1, 13) ^ v0
		v3 = bits.RotateLeft64(v3, 16) ^ v2
		v0 = bits.RotateLeft64(v0, 32)
		v2 += v1
		v0 += v3
		v1 = bits.RotateLeft64(v1, 17) ^ v2
		v3 = bits.RotateLeft64(v3, 21) ^ v0
		v2 = bits.RotateLeft64(v2, 32)
	}
	length := uint64(len(in)) << 56
	for ; len(in) >= 8; in = in[8:] {
		m := binary.LittleEndian.Uint64(in)
		v3 ^= m
		round()
		round()
		v0 ^= m
	}
	v3 ^= length
	round()
	round()
	v0 ^= length
	v2 ^= 0xff
	round()
	round()
	round()
	round()
	return v0 ^ v1 ^ v2 ^ v3
}
