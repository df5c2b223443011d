package main

import (
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// capNames are the capabilities of devices as people call them.
var capNames = []struct {
	cap  verbs.Caps
	name string
}{
	{verbs.CapRC, "RC"},
	{verbs.CapUC, "UC"},
	{verbs.CapUD, "UD"},
	{verbs.CapXRC, "XRC"},
	{verbs.CapSRQ, "shared receive queues"},
	{verbs.CapMWType1, "windows of type 1"},
	{verbs.CapMWType2, "windows of type 2"},
	{verbs.CapAtomics, "atomics"},
	{verbs.CapMulticast, "multicast"},
	{verbs.CapSendInv, "SEND with invalidate"},
	{verbs.CapLocalInv, "local invalidation"},
	{verbs.CapFlush, "FLUSH"},
	{verbs.CapAtomicWrite, "ATOMIC WRITE"},
	{verbs.CapCM, "connection management"},
	{verbs.CapCongestion, "congestion control"},
	{verbs.CapAutoMigration, "automatic path migration"},
	{verbs.CapCredits, "end-to-end credits"},
	{verbs.CapZeroBased, "zero-based regions"},
	{verbs.CapResizeCQ, "completion queues that can be resized"},
	{verbs.CapRD, "reliable datagrams"},
}

// capWords tell what capabilities there are.
func capWords(c verbs.Caps) string {
	var words []string
	for _, n := range capNames {
		if c.Has(n.cap) {
			words = append(words, n.name)
		}
	}
	return strings.Join(words, ", ")
}
