package kit

import "testing"

// A name may look like an ID that was made unique by a number.
func TestAnchorsAreUnique(t *testing.T) {
	a := Anchors{}
	seen := map[string]bool{}
	for _, name := range []string{"rc", "rc.2", "rc", "rc", "rc.2", "rc-", "rc/", "rc.2.2"} {
		id := a.Of(name)
		if seen[id] {
			t.Errorf("%s: ID %s is in use", name, id)
		}
		seen[id] = true
	}
}
