// Package linktest is a link for tests: two ends joined in memory, where what is
// sent on one is received on the other at once and in order. Beside it stands
// [Contract], the test that every link.PacketLink must pass.
//
// A fake is not safe for concurrent use.
package linktest
