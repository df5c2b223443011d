package rig

import "testing"

// Memory that happened to contain what a message would put there would hide that it was
// not put: no two bytes in a row may agree, wherever the message goes.
func TestMemoryDiffersFromMessages(t *testing.T) {
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
