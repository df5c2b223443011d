package conformance

import "testing"

func TestParseDescriptionsRejectsMalformedText(t *testing.T) {
	const good = "a/b/c\n  A title\n  sends    x\n  expects  y\n  catches  P, Q\n"
	for _, text := range []string{"", "a/b/c\n  A title\n", good + "\n" + good, "a/b/c\n  A title\n  expects  y\n  sends    x\n  catches  P\n"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("accepted:\n%s", text)
				}
			}()
			ParseDescriptions(text)
		}()
	}
	got := ParseDescriptions(good).Describe([]Case{{ID: "a/b/c"}, {ID: "d/e/f", Title: "Its own"}})
	if c := got[0]; c.Title != "A title" || c.Sends != "x" || c.Expects != "y" || len(c.Defects) != 2 || got[1].Title != "Its own" {
		t.Errorf("%q, %q, %q; %q", c.Title, c.Sends, c.Expects, got[1].Title)
	}
}
