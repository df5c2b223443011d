package main

import "testing"

// TestLayers checks this module against Rules.
func TestLayers(t *testing.T) {
	tree := load(t, "../..")
	found, err := Rules().Check(tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}
