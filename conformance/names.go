package conformance

import (
	"fmt"
	"path"
)

// MatchingNames returns the cases whose name matches a pattern of path.Match. A pattern
// with fewer elements than a name matches every name below it.
func MatchingNames[C interface{ Name() string }](cases []C, pattern string) (matching []C, err error) {
	for _, c := range cases {
		for name := c.Name(); name != "."; name = path.Dir(name) {
			ok, err := path.Match(pattern, name)
			if err != nil {
				return nil, fmt.Errorf("pattern %q: %w", pattern, err)
			}
			if ok {
				matching = append(matching, c)
				break
			}
		}
	}
	return matching, nil
}
