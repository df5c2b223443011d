// Package wire is the RoCEv2 codec: the transport headers of InfiniBand in UDP, the table
// of the headers of each opcode, and the invariant CRC (ICRC). softroce/engine uses it.
//
// It checks lengths only. Whether a P_Key matches, an opcode is in sequence or a payload
// has the length of the path MTU is decided by the engine. Reserved bits survive a round
// trip, so that tests can set them and captures can be written again byte for byte.
//
// Packet.Payload borrows the buffer that was parsed; nothing else keeps a reference to its
// input. Nothing allocates, unless an Append outgrows its slice. Distinct values may be
// used concurrently, and an ICRC may be shared.
//
// The layouts are those of the InfiniBand Architecture Specification, volume 1,
// chapter 9, its Annex A17 (RoCEv2) and Annex A19 (memory placement
// extensions); the tests hold them against packets that the Linux kernel sent.
package wire
