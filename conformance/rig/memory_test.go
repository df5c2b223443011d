package rig

import "testing"

// A missing write must be detected wherever it should have gone: no two consecutive
// bytes of initial memory equal those of a message.
func TestInitialMemoryResemblesNoMessage(t *testing.T) {
	message := Pattern(1024, 0x5a)
	for which := range 256 {
		memory := fill(4096, byte(which))
		for off := range 300 {
			for i := 1; i < len(message); i++ {
				if memory[off+i-1] == message[i-1] && memory[off+i] == message[i] {
					t.Fatalf("memory %d has bytes %d and %d of a message at %d", which, i-1, i, off)
				}
			}
		}
	}
}
