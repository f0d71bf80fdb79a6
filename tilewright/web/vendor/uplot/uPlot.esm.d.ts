// What the pages use of uPlot 1.6.32; its own types describe all of it.

/** One array of x, then one of y per series; null where a series has no point. */
type Data = (number | null)[][];
/** Colours are read anew for each drawing. */
type Colour = string | (() => string);
type Paths = { stroke: Path2D; fill: Path2D };
type Series = {
  label?: string;
  stroke?: Colour;
  width?: number;
  paths?: unknown;
  points?: {
    show?: boolean;
    size?: number;
    width?: number;
    stroke?: Colour;
    fill?: Colour;
    paths?: (chart: uPlot, series: number, first: number, last: number) => Paths;
  };
};
type Axis = {
  stroke?: Colour;
  grid?: { stroke: Colour; width: number };
  ticks?: { stroke: Colour; width: number };
  font?: string;
  size?: number;
  space?: number;
  incrs?: number[];
  values?: (chart: uPlot, splits: number[]) => string[];
};
type Options = {
  width: number;
  height: number;
  legend?: { show: boolean };
  cursor?: { show: boolean };
  padding?: number[];
  scales?: Record<string, { time?: boolean; range?: (chart: uPlot, min: number | null, max: number | null) => [number, number] }>;
  axes?: Axis[];
  series: Series[];
};

export default class uPlot {
  constructor(options: Options, data: Data, place: HTMLElement);
  static paths: { stepped(options: { align: 1 | -1 }): unknown };
  readonly data: Data;
  setData(data: Data): void;
  setSize(size: { width: number; height: number }): void;
  redraw(rebuildPaths?: boolean): void;
  valToPos(value: number, scale: string, canvasPixels: boolean): number;
  destroy(): void;
}
