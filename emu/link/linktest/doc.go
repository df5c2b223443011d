// Package linktest is a link for tests: two ends joined in memory, where what is
// sent on one is received on the other at once and in order. Beside it stand
// [Contract] and [TestStreamNet], the tests that every link.PacketLink and every
// link.StreamNet must pass.
//
// A fake is not safe for concurrent use.
package linktest
