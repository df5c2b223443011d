// Package wire is the RoCEv2 codec: the transport headers of InfiniBand in UDP, the table
// of the headers of each opcode, and the invariant CRC (ICRC); and the MADs of communication
// management (class 7, version 2), which QP 1 sends to establish and release connections.
// softroce/engine, softroce/cm and capture use it.
//
// It checks lengths only. Whether a P_Key matches, an opcode is in sequence or a payload
// has the length of the path MTU is decided by the engine. Reserved bits survive a round
// trip, so that tests can set them and captures can be written again byte for byte.
//
// A MAD is a [MADHeader] and a body of [MADBodyLen] bytes: a struct for each message. Its
// reserved bits are sent as zero and ignored on receipt.
//
// Packet.Payload borrows the buffer that was parsed; nothing else keeps a reference to its
// input. Nothing allocates, unless an Append outgrows its slice. Distinct values may be
// used concurrently, and an ICRC may be shared.
//
// The layouts are those of the InfiniBand Architecture Specification, volume 1, chapters 9 and 12
// (communication management), its Annex A17 (RoCEv2) and Annex A19 (memory placement extensions);
// tests compare them with packets of the Linux kernel.
package wire
