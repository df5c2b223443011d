// Package wire is the RoCEv2 codec: the headers of the InfiniBand transport as
// they travel inside UDP, the table that says which opcode carries which of
// them, and the invariant CRC (ICRC) that protects a packet from end to end.
//
// It refuses to be more than that. It checks lengths, never meaning: whether a
// P_Key matches, an opcode is in sequence or a payload is as long as the path
// MTU wants is for an engine to decide. Reserved bits survive a round trip, so
// a test can set them and a capture can be written again byte for byte.
//
// Every type is a plain value that owns nothing. Packet.Payload borrows the
// buffer it was parsed from; nothing else keeps a reference to its input. To
// encode, decode, seal and check allocates nothing (unless an Append outgrows
// its slice), whether it succeeds or fails. Nothing keeps state between calls:
// distinct values may be used concurrently, and an ICRC may be shared.
//
// The layouts are those of the InfiniBand Architecture Specification, volume 1,
// chapter 9, its Annex A17 (RoCEv2) and Annex A19 (memory placement
// extensions); the tests hold them against packets that the Linux kernel sent.
package wire
