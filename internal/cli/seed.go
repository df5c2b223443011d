package cli

import (
	"crypto/rand"
	"encoding/binary"
	"strconv"
)

// ParseSeed reads the value of --seed: a number, "random", or empty for the default.
func ParseSeed(text string, defaultValue uint64) (seed uint64, err error) {
	switch text {
	case "":
		return defaultValue, nil
	case "random":
		var b [4]byte // short enough to be typed
		_, _ = rand.Read(b[:])
		return uint64(binary.LittleEndian.Uint32(b[:])) | 1, nil // never 0, which is invalid
	}
	if seed, err = strconv.ParseUint(text, 0, 64); err != nil || seed == 0 {
		return 0, Errorf("--seed %s: give a number from 1 on, or \"random\"", text)
	}
	return seed, nil
}
