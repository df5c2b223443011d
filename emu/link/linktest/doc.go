// Package linktest has the tests that every link.PacketLink ([TestPacketLink]) and every
// link.StreamNet ([TestStreamNet]) must pass, and a fake link for other tests: [Pair]
// returns two ends joined in memory, which deliver datagrams at once and in order.
//
// A fake is not safe for concurrent use.
package linktest
