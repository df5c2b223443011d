// Package wire is the iWARP codec: the start-up frames of MPA, its framing of
// a TCP byte stream into FPDUs, and the headers of DDP and RDMAP that they
// carry, with the extensions for atomics and immediate data.
//
// It refuses to be more than that. It checks lengths, never meaning: whether a
// version is known, a queue number fits an opcode or a message arrives in
// sequence is for an engine to decide. Reserved bits survive a round trip, so a
// test can set them and a capture can be written again byte for byte.
//
// Headers are plain values that own nothing. Only two types have a state, both
// of one direction of one stream: a [Framer] knows where the next FPDU will
// stand, a [Deframer] keeps the part of an FPDU that has arrived, which is
// never more than [MaxFPDULen] octets. Whatever a Deframer or a Parse returns
// borrows its input, or the Deframer's buffer until the next call. Apart from
// that buffer, which grows to the longest FPDU that came in pieces, nothing
// allocates (unless an Append outgrows its slice), whether it succeeds or fails.
// Distinct values may be used concurrently.
//
// The layouts are those of RFC 5044 (MPA), RFC 6581 (enhanced start-up), RFC
// 5041 (DDP), RFC 5040 (RDMAP) and RFC 7306 (atomics, immediate data); the tests
// hold them against what the Linux kernel's soft-iWARP sent.
package wire
