package oneprocess

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

// storyTimeout ends a story that hangs. A slow and busy machine does not reach it.
const storyTimeout = 3 * time.Minute

// Main is the main function of a program without flags, go run ./examples/name. It
// runs the story, and exits with status 1 if that returns an error.
func Main(name, about string, story func(context.Context) error) {
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "%s It has no flags:\n\n\tgo run ./examples/%s\n", about, name)
	}
	flag.Parse() // exits on -help and on an error
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%s: unexpected argument %q\n", name, flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, storyTimeout)
	defer cancel()
	if err := story(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\n%s: %v\n", name, err)
		os.Exit(1)
	}
}
