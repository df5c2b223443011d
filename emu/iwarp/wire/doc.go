// Package wire is the iWARP codec: the start-up frames of MPA, its framing of a TCP byte
// stream into FPDUs, and the headers of DDP and RDMAP, with the extensions for atomics and
// immediate data. emu/iwarp, the iWARP providers and capture use it.
//
// It checks lengths only. Whether a version is supported, a queue number is right for an
// opcode or a message is in sequence is decided by the engine. Reserved bits survive a
// round trip, so that tests can set them and captures can be written again byte for byte.
//
// Two types have state, of one direction of a stream: a [Framer] counts octets, a [Deframer]
// buffers an incomplete FPDU of up to [MaxFPDULen] octets. Results of Parse and of a Deframer
// borrow the input, or the Deframer's buffer until the next call. Apart from that buffer nothing
// allocates, unless an Append outgrows its slice. Distinct values may be used concurrently.
//
// The layouts are those of RFC 5044 (MPA), RFC 6581 (enhanced start-up), RFC
// 5041 (DDP), RFC 5040 (RDMAP) and RFC 7306 (atomics, immediate data); the tests
// hold them against what the Linux kernel's soft-iWARP sent.
package wire
