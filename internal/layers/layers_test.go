package layers

import "testing"

// TestLayers holds this module to its architecture. Each message says what is
// wrong, where, and why it matters.
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
