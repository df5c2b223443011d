// Command raced says what the race step of CI tests: every package in which goroutines
// meet, which is one whose own code or tests have a go statement, a channel, a lock, an
// atomic variable or parallel tests. Packages without any of these (codecs, engines) cannot
// race by themselves, and are raced as parts of the others.
//
//	raced          print the packages
//	raced -skip    print the tests to leave out, for go test -skip
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	skip := flag.Bool("skip", false, "print a pattern for the tests to leave out")
	flag.Parse()
	if *skip {
		fmt.Println(skipPattern())
		return
	}
	all, err := packages(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "raced:", err)
		os.Exit(1)
	}
	var names []string
	for _, p := range all {
		if p.hasTests() && p.concurrent {
			names = append(names, p.ImportPath)
		}
	}
	fmt.Println(strings.Join(names, "\n"))
}
