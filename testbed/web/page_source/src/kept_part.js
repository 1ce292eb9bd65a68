// Parts of the page that are drawn again only where what they show has changed.

import { Component } from "preact";

// draw: a function of props; shown: of props, the values that decide.
// Not useMemo: an element that is kept so keeps the whole tree, and the frame, in
// which it was made; a page beside a busy run grew by 0.8 MB a second.
export function kept(draw, shown) {
  return class extends Component {
    shouldComponentUpdate(next) {
      const before = shown(this.props);
      return shown(next).some((value, place) => value !== before[place]);
    }

    render(props) {
      return draw(props);
    }
  };
}
