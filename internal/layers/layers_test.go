package main

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// TestLayers checks this module against Rules.
func TestLayers(t *testing.T) {
	tree := load(t, "../..")
	found := must.Get(Rules().Check(tree))(t)
	for _, f := range found {
		t.Error(f)
	}
}
